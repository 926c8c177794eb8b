// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/schedule/schedule.hpp"

namespace winnow::tests {

/// The names of the table of schedules, in its order.
inline std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const comm::Schedule* schedule : comm::schedules()) names.emplace_back(schedule->name);
  return names;
}

/// The names of the schedules that two levels run between nodes.
inline std::vector<std::string> inner_schedule_names() {
  std::vector<std::string> names;
  for (const comm::Schedule* schedule : comm::schedules()) {
    if (schedule->inner != nullptr) names.emplace_back(schedule->inner->name);
  }
  return names;
}

}  // namespace winnow::tests
