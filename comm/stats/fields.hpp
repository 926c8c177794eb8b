// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <winnow/stats.hpp>

namespace winnow::comm {

/// A stage of a call, and the seconds that it took.
struct StatsStage {
  std::string_view name;
  double Stats::*seconds;
};

/// In the order in which a call goes through them.
inline constexpr std::array kStages = {
    StatsStage{"select", &Stats::select_seconds}, StatsStage{"encode", &Stats::encode_seconds},
    StatsStage{"exchange", &Stats::exchange_seconds}, StatsStage{"wait", &Stats::wait_seconds},
    StatsStage{"add", &Stats::add_seconds}};

/// A field of Stats.
struct StatsField {
  std::string_view name;
  std::variant<std::uint64_t Stats::*, double Stats::*, std::string Stats::*> value;
  bool adds_up = false;  ///< over calls
};

/// Every field: what adds and prints statistics goes through this list.
inline constexpr std::array kStatsFields = {
    StatsField{"calls", &Stats::calls, true},
    StatsField{"schedule", &Stats::schedule},
    StatsField{"reason", &Stats::reason},
    StatsField{"coding", &Stats::coding},
    StatsField{"count", &Stats::count, true},
    StatsField{"kept", &Stats::kept, true},
    StatsField{"wire_bytes", &Stats::wire_bytes, true},
    StatsField{"network_bytes", &Stats::network_bytes, true},
    StatsField{"dense_wire_bytes", &Stats::dense_wire_bytes, true},
    StatsField{"select_seconds", &Stats::select_seconds, true},
    StatsField{"encode_seconds", &Stats::encode_seconds, true},
    StatsField{"exchange_seconds", &Stats::exchange_seconds, true},
    StatsField{"wait_seconds", &Stats::wait_seconds, true},
    StatsField{"add_seconds", &Stats::add_seconds, true},
    StatsField{"poisoned", &Stats::poisoned, true},
    StatsField{"clipped", &Stats::clipped, true},
    StatsField{"allocations", &Stats::allocations, true},
    StatsField{"measured", &Stats::measured, true},
    StatsField{"nonzero", &Stats::nonzero, true},
    StatsField{"digest", &Stats::digest},
    StatsField{"residual_norm", &Stats::residual_norm},
    StatsField{"dense_seconds", &Stats::dense_seconds, true},
};

}  // namespace winnow::comm
