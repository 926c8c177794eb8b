// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What schedules cost: what several share, and two levels by their inner schedule.
#include <algorithm>

#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/schedule.hpp"

namespace winnow::comm {
namespace {

using compress::Header;

std::uint64_t divide_up(std::uint64_t count, std::uint64_t parts) {
  return (count + parts - 1) / parts;
}

/// The levels of a shape's ranks, and the cost inputs of one rail.
struct LevelShapes {
  explicit LevelShapes(const CostShape& shape)
      : flat(shape.topology == nullptr ? Topology::uniform(shape.ranks, 1)
                                       : Topology::uniform(1, 1)),
        topology(shape.topology == nullptr ? flat : *shape.topology),
        shard(share_of(shape, static_cast<std::uint64_t>(topology.rails()))) {
    shard.ranks = topology.nodes();
    shard.topology = nullptr;
  }

  Topology flat;
  const Topology& topology;
  CostShape shard;
};

/// Bytes that a node sends as a rank of a rail.
std::uint64_t rank_bytes(const Schedule& inner, const CostShape& shard, int node) {
  const ScheduleCosts& costs = inner.costs;
  return costs.rank_bytes != nullptr ? costs.rank_bytes(shard, node) : costs.wire_bytes(shard);
}

}  // namespace

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

/// In two levels, a rank sends its gradient within its node, except for the shards that it serves,
/// and the final messages of these; between nodes, what the inner schedule sends of its shards.
std::uint64_t Schedule::wire_bytes(const CostShape& shape) const {
  if (inner == nullptr) return costs.wire_bytes(shape);
  const LevelShapes levels(shape);
  const auto& [flat, topology, shard] = levels;
  const std::uint64_t gradient_bytes = shard.count * sizeof(float) + sizeof(Header);
  std::uint64_t most = 0;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const int node = topology.node_of(rank), locals = topology.ranks_on(node);
    const int rails = topology.rails();
    const auto served =
        static_cast<std::uint64_t>((rails - topology.local_rank(rank) + locals - 1) / locals);
    std::uint64_t bytes = served * rank_bytes(*inner, shard, node);
    if (locals > 1) {
      bytes += (static_cast<std::uint64_t>(rails) - served) * gradient_bytes;
      bytes += static_cast<std::uint64_t>(locals - 1) * served * inner->costs.outcome_bytes(shard);
    }
    most = std::max(most, bytes);
  }
  return most;
}

std::uint64_t Schedule::network_bytes(const CostShape& shape) const {
  if (inner != nullptr) {  // every node sends for every rail; node 0 is the busiest
    const LevelShapes levels(shape);
    return static_cast<std::uint64_t>(levels.topology.rails()) *
           rank_bytes(*inner, levels.shard, 0);
  }
  return costs.network_bytes != nullptr ? costs.network_bytes(shape)
                                        : all_to_all_network_bytes(shape, costs.wire_bytes(shape));
}

std::uint64_t Schedule::messages(const CostShape& shape) const {
  if (inner == nullptr) return costs.messages(shape);
  const LevelShapes levels(shape);
  const auto& [flat, topology, shard] = levels;
  const std::uint64_t between = inner->messages(shard);
  std::uint64_t most = 0;
  for (int node = 0; node < topology.nodes(); ++node) {
    const int locals = topology.ranks_on(node);
    const auto served =
        divide_up(static_cast<std::uint64_t>(topology.rails()), static_cast<std::uint64_t>(locals));
    most = std::max(most, 2 * static_cast<std::uint64_t>(locals - 1) * served + served * between);
  }
  return most;
}

double Schedule::pass_bytes(const CostShape& shape) const {
  if (inner == nullptr) return costs.pass_bytes(shape);
  CostShape between = shape;
  between.one_outcome = true;
  if (shape.topology != nullptr) between.ranks = shape.topology->nodes();
  return kReducePass * static_cast<double>(shape.count) + inner->pass_bytes(between);
}

std::uint64_t bytes_to_each_other(const CostShape& shape) {
  return one_to_each_other(shape) * compress::message_bytes(shape.count, shape.k, shape.codings);
}

double encode_and_add_pass(const CostShape& shape) {
  return encode_pass(shape.count, shape.k, shape.parameters) +
         add_pass(shape.count, shape.k, shape.ranks);
}

std::uint64_t one_to_each_other(const CostShape& shape) {
  return static_cast<std::uint64_t>(shape.ranks - 1);
}

std::uint64_t two_to_each_other(const CostShape& shape) {
  return 2 * one_to_each_other(shape);
}

CostShape share_of(CostShape shape, std::uint64_t shares) {
  for (std::uint64_t* const number : {&shape.count, &shape.k, &shape.sums_k, &shape.parameters}) {
    *number = divide_up(*number, shares);
  }
  return shape;
}

std::uint64_t one_from_each_owner(const CostShape& shape) {
  const CostShape share = share_of_owner(shape);
  return static_cast<std::uint64_t>(share.ranks) *
         compress::message_bytes(share.count, share.sums_k, share.codings);
}

}  // namespace winnow::comm
