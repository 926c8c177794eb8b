// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// Bytes with gather between the nodes: within its node a rank sends its gradient, but for the
/// shards that it serves, and the messages of these; between nodes gather's of its shards.
std::uint64_t two_level_gather_wire_bytes(const CostShape& shape);
std::uint64_t two_level_gather_network_bytes(const CostShape& shape);
std::uint64_t two_level_gather_messages(const CostShape& shape);
double two_level_gather_pass_bytes(const CostShape& shape);
/// The same with doubling between the nodes.
std::uint64_t two_level_doubling_wire_bytes(const CostShape& shape);
std::uint64_t two_level_doubling_network_bytes(const CostShape& shape);
std::uint64_t two_level_doubling_messages(const CostShape& shape);
double two_level_doubling_pass_bytes(const CostShape& shape);
/// The same with balanced between the nodes.
std::uint64_t two_level_balanced_wire_bytes(const CostShape& shape);
std::uint64_t two_level_balanced_network_bytes(const CostShape& shape);
std::uint64_t two_level_balanced_messages(const CostShape& shape);
double two_level_balanced_pass_bytes(const CostShape& shape);
/// The same with shared between the nodes: within one, supports and values travel together.
std::uint64_t two_level_shared_wire_bytes(const CostShape& shape);
std::uint64_t two_level_shared_network_bytes(const CostShape& shape);
std::uint64_t two_level_shared_messages(const CostShape& shape);
double two_level_shared_pass_bytes(const CostShape& shape);

/// Hierarchical: only compressed sums of whole nodes leave a node. A part is cut into one shard for
/// each rail (comm/schedule/shards.hpp); on each node one rank serves a shard. Rounds:
///   1. Each rank sends its gradient, shard by shard, to the ranks of its node that serve them.
///      These add the node's gradients in rank order, position i as ((0 + g[0][i]) + g[1][i]) + ...
///   2. Each rail reduces its shard by the inner schedule: nodes are its ranks, node sums its
///      gradients. What it does not send stays with the server on each node, so a rank's residual
///      is that of the shards that it serves; what it holds elsewhere, from a failed call or
///      another schedule, goes into round 1 once.
///   3. Each server sends the messages that the inner schedule ended with to its node, as they are;
///      what it ended with in no message (a sum of doubling; of shared, values whose support came
///      before them) becomes one, whose values stay as they are.
/// So position i sums over nodes in the order of the inner schedule, and each node's term over its
/// ranks in theirs. Leaves Exchange::sum; the elements keep the gradient.
Rounds run_two_level(Exchange& exchange);

/// Writes the sum, which the factor is in, to the elements; the residual that travelled in round 1
/// is cleared, and what balanced or shared leaves is kept.
void write_two_level(Exchange& exchange, const Exec& exec);

}  // namespace winnow::comm
