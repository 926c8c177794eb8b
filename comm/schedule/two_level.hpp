// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// Bytes with gather between nodes. Within its node a rank sends its gradient, except for the
/// shards that it serves, and the messages of these; between nodes, gather's bytes of its shards.
std::uint64_t two_level_gather_wire_bytes(const CostShape& shape);
std::uint64_t two_level_gather_network_bytes(const CostShape& shape);
std::uint64_t two_level_gather_messages(const CostShape& shape);
double two_level_gather_pass_bytes(const CostShape& shape);
/// Bytes with doubling between nodes.
std::uint64_t two_level_doubling_wire_bytes(const CostShape& shape);
std::uint64_t two_level_doubling_network_bytes(const CostShape& shape);
std::uint64_t two_level_doubling_messages(const CostShape& shape);
double two_level_doubling_pass_bytes(const CostShape& shape);
/// Bytes with balanced between nodes.
std::uint64_t two_level_balanced_wire_bytes(const CostShape& shape);
std::uint64_t two_level_balanced_network_bytes(const CostShape& shape);
std::uint64_t two_level_balanced_messages(const CostShape& shape);
double two_level_balanced_pass_bytes(const CostShape& shape);
/// Bytes with shared between nodes; within a node, supports and values travel together.
std::uint64_t two_level_shared_wire_bytes(const CostShape& shape);
std::uint64_t two_level_shared_network_bytes(const CostShape& shape);
std::uint64_t two_level_shared_messages(const CostShape& shape);
double two_level_shared_pass_bytes(const CostShape& shape);

/// Hierarchical: only compressed sums of whole nodes leave a node. A part is cut into one shard per
/// rail (comm/schedule/shards.hpp); on each node one rank serves a shard. Rounds:
///   1. Each rank sends its gradient, shard by shard, to the ranks of its node that serve them.
///      These add the node's gradients in rank order, position i as ((0 + g[0][i]) + g[1][i]) + ...
///   2. Each rail reduces its shard by the inner schedule, with nodes as ranks and node sums as
///      gradients. What it does not send stays with the server on each node, so a rank's residual
///      covers the shards that it serves; any residual elsewhere, from a failed call or another
///      schedule, goes into round 1 once.
///   3. Each server sends the inner schedule's final messages to its node unchanged. An outcome
///      that is not a message (doubling's sum; shared's values, whose support came before) becomes
///      one, with uncoded values.
/// So position i sums over nodes in the inner schedule's order, and each node's term over its ranks
/// in rank order. Leaves Exchange::sum; the elements keep the gradient.
Rounds run_two_level(Exchange& exchange);

/// Writes the sum, which includes the factor, to the elements. Clears the residual that travelled
/// in round 1, and keeps what balanced or shared leaves.
void write_two_level(Exchange& exchange, const Exec& exec);

}  // namespace winnow::comm
