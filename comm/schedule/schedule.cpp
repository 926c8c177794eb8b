// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "comm/schedule/two_level.hpp"
#include "compress/nearest.hpp"

namespace winnow::comm {

namespace {

constexpr std::array<const Schedule*, 9> kSchedules{
    &kDense,          &kGather,           &kDoubling,         &kBalanced,      &kShared,
    &kTwoLevelGather, &kTwoLevelDoubling, &kTwoLevelBalanced, &kTwoLevelShared};

}  // namespace

std::uint64_t Schedule::wire_bytes(const CostShape& shape) const {
  return inner == nullptr ? costs.wire_bytes(shape) : two_level_wire_bytes(*inner, shape);
}

std::uint64_t Schedule::network_bytes(const CostShape& shape) const {
  return inner == nullptr ? costs.network_bytes(shape) : two_level_network_bytes(*inner, shape);
}

std::uint64_t Schedule::messages(const CostShape& shape) const {
  return inner == nullptr ? costs.messages(shape) : two_level_messages(*inner, shape);
}

double Schedule::pass_bytes(const CostShape& shape) const {
  return inner == nullptr ? costs.pass_bytes(shape) : two_level_pass_bytes(*inner, shape);
}

std::span<const Schedule* const> schedules() {
  return kSchedules;
}

const Schedule& find_schedule(std::string_view name) {
  std::vector<std::string_view> known = {"auto", "least_bytes", "two_level"};
  for (const Schedule* schedule : kSchedules) {
    if (schedule->name == name) return *schedule;
    known.push_back(schedule->name);
  }
  fail_usage("unknown schedule '" + std::string(name) + "'; did you mean '" +
             std::string(compress::nearest_word(name, known)) + "'?");
}

std::vector<const Schedule*> find_schedules(std::string_view name) {
  std::vector<const Schedule*> found;
  for (const Schedule* schedule : kSchedules) {
    if (schedule->has_own_support()) continue;
    if (name == "auto" || name == "least_bytes" ||
        (name == "two_level" && schedule->inner != nullptr)) {
      found.push_back(schedule);
    }
  }
  if (found.empty()) found.push_back(&find_schedule(name));
  return found;
}

std::uint64_t one_to_each_other(const CostShape& shape) {
  return static_cast<std::uint64_t>(shape.ranks - 1);
}

std::uint64_t two_to_each_other(const CostShape& shape) {
  return 2 * one_to_each_other(shape);
}

std::uint64_t one_from_each_owner(const CostShape& shape) {
  const auto owners = static_cast<std::uint64_t>(shape.ranks);
  const std::uint64_t count = (shape.count + owners - 1) / owners;
  const std::uint64_t k = std::min((shape.k + owners - 1) / owners, count);
  return owners * compress::message_bytes(count, k, shape.codings);
}

std::uint64_t all_to_all_network_bytes(const CostShape& shape, std::uint64_t wire_bytes) {
  if (shape.topology == nullptr || shape.ranks == 1) return wire_bytes;
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  std::uint64_t most = 0;
  for (int node = 0; node < shape.topology->nodes(); ++node) {
    const auto locals = static_cast<std::uint64_t>(shape.topology->ranks_on(node));
    most = std::max(most, locals * (ranks - locals));
  }
  return most * (wire_bytes / (ranks - 1));
}

}  // namespace winnow::comm
