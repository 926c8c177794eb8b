// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/exchange.hpp"

namespace winnow::comm {

/// What a schedule's cost depends on.
struct CostShape {
  int ranks = 1;
  std::uint64_t count = 0;          ///< elements of the part
  std::uint64_t message_bytes = 0;  ///< of one rank's message
};

/// Who sends what to whom, in which order, so that every rank ends with the same sum: a line of
/// the table of schedules.
struct Schedule {
  std::string_view name;
  std::string_view summary;
  /// Bytes that the busiest rank sends.
  std::uint64_t (*wire_bytes)(const CostShape&);
  /// Runs one part. Throws CommError or UsageError; the part's gradient is then in the residual or
  /// in Exchange::own, and what the elements hold does not matter.
  void (*run)(Exchange&);
};

std::span<const Schedule> schedules();

/// Throws UsageError for an unknown name, and names the nearest.
const Schedule& find_schedule(std::string_view name);

}  // namespace winnow::comm
