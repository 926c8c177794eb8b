// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

// What two levels cost, by the inner schedule between nodes.

/// Within its node a rank sends its gradient, except for the shards that it serves, and the final
/// messages of these; between nodes, what the inner schedule sends of its shards.
std::uint64_t two_level_wire_bytes(const Schedule& inner, const CostShape& shape);
std::uint64_t two_level_network_bytes(const Schedule& inner, const CostShape& shape);
std::uint64_t two_level_messages(const Schedule& inner, const CostShape& shape);
double two_level_pass_bytes(const Schedule& inner, const CostShape& shape);

}  // namespace winnow::comm
