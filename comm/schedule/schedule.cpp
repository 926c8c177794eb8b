// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "comm/schedule/balanced.hpp"
#include "comm/schedule/dense.hpp"
#include "comm/schedule/doubling.hpp"
#include "comm/schedule/gather.hpp"
#include "comm/schedule/shared.hpp"
#include "comm/schedule/two_level.hpp"
#include "compress/nearest.hpp"

namespace winnow::comm {

namespace {

constexpr Schedule kDense{
    .name = "dense",
    .summary = "the transport's own allreduce, or Winnow's ring",
    .partitioned = false,
    .wire_bytes = dense_wire_bytes,
    .run = run_dense,
    .network_bytes = dense_network_bytes,
    .messages = two_to_each_other,
    .pass_bytes = dense_pass_bytes,
    .write = write_dense,
    .stream_ordered = true,
};
constexpr Schedule kGather{
    .name = "gather",
    .summary = "all-gather of messages, added in rank order",
    .partitioned = false,
    .wire_bytes = gather_wire_bytes,
    .run = run_gather,
    .network_bytes = gather_network_bytes,
    .messages = one_to_each_other,
    .pass_bytes = gather_pass_bytes,
    .stream_ordered = true,
};
constexpr Schedule kDoubling{
    .name = "doubling",
    .summary = "pairs, then pairs of pairs, exchange the union of what they have",
    .partitioned = false,
    .wire_bytes = doubling_wire_bytes,
    .run = run_doubling,
    .network_bytes = doubling_network_bytes,
    .messages = doubling_messages,
    .pass_bytes = doubling_pass_bytes,
    .outcome = compress::Header::Kind::partial,
};
constexpr Schedule kBalanced{
    .name = "balanced",
    .summary = "owners sum their positions in rank order, keep and all-gather",
    .partitioned = true,
    .wire_bytes = balanced_wire_bytes,
    .run = run_balanced,
    .network_bytes = balanced_network_bytes,
    .messages = two_to_each_other,
    .pass_bytes = balanced_pass_bytes,
    .outcome = compress::Header::Kind::sum,
};
constexpr Schedule kShared{
    .name = "shared",
    .summary = "one support, which ranks pick in turn, sum at and all-gather",
    .partitioned = true,
    .wire_bytes = shared_wire_bytes,
    .run = run_shared,
    .network_bytes = shared_network_bytes,
    .messages = shared_messages,
    .pass_bytes = shared_pass_bytes,
    .outcome = compress::Header::Kind::sum,
    .by_name = true,
    .fixed_k = true,
};
constexpr Schedule kTwoLevelGather{
    .name = "two_level:gather",
    .summary = "node sums by shards, gather between nodes",
    .partitioned = false,
    .wire_bytes = two_level_gather_wire_bytes,
    .run = run_two_level,
    .network_bytes = two_level_gather_network_bytes,
    .messages = two_level_gather_messages,
    .pass_bytes = two_level_gather_pass_bytes,
    .write = write_two_level,
    .inner = &kGather,
};
constexpr Schedule kTwoLevelDoubling{
    .name = "two_level:doubling",
    .summary = "node sums by shards, doubling between nodes",
    .partitioned = false,
    .wire_bytes = two_level_doubling_wire_bytes,
    .run = run_two_level,
    .network_bytes = two_level_doubling_network_bytes,
    .messages = two_level_doubling_messages,
    .pass_bytes = two_level_doubling_pass_bytes,
    .write = write_two_level,
    .inner = &kDoubling,
};
constexpr Schedule kTwoLevelBalanced{
    .name = "two_level:balanced",
    .summary = "node sums by shards, balanced between nodes",
    .partitioned = false,
    .wire_bytes = two_level_balanced_wire_bytes,
    .run = run_two_level,
    .network_bytes = two_level_balanced_network_bytes,
    .messages = two_level_balanced_messages,
    .pass_bytes = two_level_balanced_pass_bytes,
    .write = write_two_level,
    .inner = &kBalanced,
};
constexpr Schedule kTwoLevelShared{
    .name = "two_level:shared",
    .summary = "node sums by shards, shared between nodes",
    .partitioned = false,
    .wire_bytes = two_level_shared_wire_bytes,
    .run = run_two_level,
    .network_bytes = two_level_shared_network_bytes,
    .messages = two_level_shared_messages,
    .pass_bytes = two_level_shared_pass_bytes,
    .write = write_two_level,
    .inner = &kShared,
    .by_name = true,
    .fixed_k = true,
};
constexpr std::array kSchedules = {
    kDense,          kGather,           kDoubling,         kBalanced,      kShared,
    kTwoLevelGather, kTwoLevelDoubling, kTwoLevelBalanced, kTwoLevelShared};

}  // namespace

std::span<const Schedule> schedules() {
  return kSchedules;
}

const Schedule& find_schedule(std::string_view name) {
  std::vector<std::string_view> known = {"auto", "least_bytes", "two_level"};
  for (const Schedule& schedule : kSchedules) {
    if (schedule.name == name) return schedule;
    known.push_back(schedule.name);
  }
  fail_usage("unknown schedule '" + std::string(name) + "'; did you mean '" +
             std::string(compress::nearest_word(name, known)) + "'?");
}

std::vector<const Schedule*> find_schedules(std::string_view name) {
  std::vector<const Schedule*> found;
  for (const Schedule& schedule : kSchedules) {
    if (schedule.by_name) continue;
    if (name == "auto" || name == "least_bytes" ||
        (name == "two_level" && schedule.inner != nullptr)) {
      found.push_back(&schedule);
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
