// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/two_level.hpp"

namespace winnow::comm {
namespace {

using compress::Header;

const Topology& topology_of(const CostShape& shape, Topology& flat) {
  if (shape.topology != nullptr) return *shape.topology;
  flat = Topology::uniform(shape.ranks, 1);
  return flat;
}

std::uint64_t divide_up(std::uint64_t count, int parts) {
  const auto p = static_cast<std::uint64_t>(parts);
  return (count + p - 1) / p;
}

/// Cost inputs of one rail.
CostShape shard_of(const CostShape& shape, const Topology& topology) {
  return {.ranks = topology.nodes(),
          .count = divide_up(shape.count, topology.rails()),
          .k = divide_up(shape.k, topology.rails()),
          .codings = shape.codings,
          .overlap = shape.overlap};
}

/// Bytes that a node sends as a rank of a rail.
std::uint64_t rank_bytes(const Schedule& inner, const CostShape& shard, int node) {
  const ScheduleCosts& costs = inner.costs;
  return costs.rank_bytes != nullptr ? costs.rank_bytes(shard, node) : costs.wire_bytes(shard);
}

}  // namespace

std::uint64_t two_level_wire_bytes(const Schedule& inner, const CostShape& shape) {
  Topology flat = Topology::uniform(1, 1);
  const Topology& topology = topology_of(shape, flat);
  const CostShape shard = shard_of(shape, topology);
  const std::uint64_t gradient_bytes = shard.count * sizeof(float) + sizeof(Header);
  std::uint64_t most = 0;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const int node = topology.node_of(rank), locals = topology.ranks_on(node);
    const int rails = topology.rails();
    const auto served =
        static_cast<std::uint64_t>((rails - topology.local_rank(rank) + locals - 1) / locals);
    std::uint64_t bytes = served * rank_bytes(inner, shard, node);
    if (locals > 1) {
      bytes += (static_cast<std::uint64_t>(rails) - served) * gradient_bytes;
      bytes += static_cast<std::uint64_t>(locals - 1) * served * inner.costs.outcome_bytes(shard);
    }
    most = std::max(most, bytes);
  }
  return most;
}

std::uint64_t two_level_network_bytes(const Schedule& inner, const CostShape& shape) {
  Topology flat = Topology::uniform(1, 1);
  const Topology& topology = topology_of(shape, flat);
  const CostShape shard = shard_of(shape, topology);
  // Every node sends for every rail; node 0 is the busiest.
  return static_cast<std::uint64_t>(topology.rails()) * rank_bytes(inner, shard, 0);
}

std::uint64_t two_level_messages(const Schedule& inner, const CostShape& shape) {
  Topology flat = Topology::uniform(1, 1);
  const Topology& topology = topology_of(shape, flat);
  const std::uint64_t between = inner.messages(shard_of(shape, topology));
  std::uint64_t most = 0;
  for (int node = 0; node < topology.nodes(); ++node) {
    const int locals = topology.ranks_on(node);
    const auto served = divide_up(static_cast<std::uint64_t>(topology.rails()), locals);
    most = std::max(most, 2 * static_cast<std::uint64_t>(locals - 1) * served + served * between);
  }
  return most;
}

double two_level_pass_bytes(const Schedule& inner, const CostShape& shape) {
  Topology flat = Topology::uniform(1, 1);
  CostShape between = shape;
  between.ranks = topology_of(shape, flat).nodes();
  return kReducePass * static_cast<double>(shape.count) + inner.pass_bytes(between);
}

}  // namespace winnow::comm
