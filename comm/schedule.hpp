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
  std::uint64_t count = 0;         ///< positions of the part
  std::uint64_t k = 0;             ///< elements kept of it
  compress::Codings codings = {};  ///< of its messages
};

/// Who sends what to whom, in which order, so that every rank ends with the same sum: a line of
/// the table of schedules.
struct Schedule {
  std::string_view name;
  std::string_view summary;
  bool shared_out;  ///< positions have owners, who sum them
  /// Bytes that the busiest rank sends; where the shape of the support decides, those of a support
  /// that is spread evenly.
  std::uint64_t (*wire_bytes)(const CostShape&);
  /// Runs one part. Throws CommError or UsageError; the part's gradient is then in the residual or
  /// in Exchange::own, and what the elements hold does not matter.
  void (*run)(Exchange&);
};

std::span<const Schedule> schedules();

/// Throws UsageError for an unknown name, and names the nearest.
const Schedule& find_schedule(std::string_view name);

}  // namespace winnow::comm
