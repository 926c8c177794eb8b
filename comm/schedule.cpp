// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule.hpp"

#include <array>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "comm/balanced.hpp"
#include "comm/dense.hpp"
#include "comm/gather.hpp"
#include "compress/nearest.hpp"

namespace winnow::comm {

namespace {
constexpr std::array kSchedules = {
    Schedule{"dense", "the transport's own allreduce, or Winnow's ring", false, dense_wire_bytes,
             run_dense},
    Schedule{"gather", "all-gather of messages, added in rank order", false, gather_wire_bytes,
             run_gather},
    Schedule{"balanced", "owners sum their positions in rank order, keep and all-gather", true,
             balanced_wire_bytes, run_balanced},
};
}  // namespace

std::span<const Schedule> schedules() {
  return kSchedules;
}

const Schedule& find_schedule(std::string_view name) {
  std::vector<std::string_view> known = {"auto"};
  for (const Schedule& schedule : kSchedules) {
    if (schedule.name == name) return schedule;
    known.push_back(schedule.name);
  }
  fail_usage("unknown schedule '" + std::string(name) + "'; did you mean '" +
             std::string(compress::nearest_word(name, known)) + "'?");
}

}  // namespace winnow::comm
