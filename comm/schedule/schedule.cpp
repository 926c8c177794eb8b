// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/schedule.hpp"

#include <array>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "compress/nearest.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

namespace {

constexpr std::array<const Schedule*, 9> kSchedules{
    &kDense,          &kGather,           &kDoubling,         &kBalanced,      &kShared,
    &kTwoLevelGather, &kTwoLevelDoubling, &kTwoLevelBalanced, &kTwoLevelShared};

}  // namespace

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

bool goes_alone(const Schedule& schedule, const Exchange& exchange, int ranks) {
  const bool waits = kernels::reading_waits(exchange.exec) &&
                     (exchange.status == nullptr || schedule.waits(exchange.compressor, ranks));
  return waits || exchange.one_by_one;
}

}  // namespace winnow::comm
