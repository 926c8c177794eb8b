// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "comm/call/staged_segments.hpp"
#include "comm/schedule/exchange.hpp"
#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// The memory that calls use one after another, so that only the first ones of a bucket allocate.
struct CallMemory {
  StagedSegments segments;
  std::vector<const Schedule*> schedules;  ///< one for each part
  std::vector<Exchange> exchanges;         ///< likewise

  /// Makes room for calls of so many parts.
  void reserve(std::size_t parts) {
    exchanges.reserve(parts);
    schedules.reserve(parts);
  }
};

}  // namespace winnow::comm
