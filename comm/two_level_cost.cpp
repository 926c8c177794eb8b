// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm/balanced.hpp"
#include "comm/gather.hpp"
#include "comm/two_level.hpp"

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

/// Of one rail.
CostShape shard_of(const CostShape& shape, const Topology& topology) {
  return {.ranks = topology.nodes(),
          .count = divide_up(shape.count, topology.rails()),
          .k = divide_up(shape.k, topology.rails()),
          .codings = shape.codings};
}

using WireBytes = std::uint64_t (*)(const CostShape&);

/// The busiest rank's, where a rail ends with one message a node, together `outcome_bytes`.
std::uint64_t wire_bytes(const CostShape& shape, WireBytes inner_bytes, WireBytes outcome_bytes) {
  Topology flat = Topology::uniform(1, 1);
  const Topology& topology = topology_of(shape, flat);
  const CostShape shard = shard_of(shape, topology);
  const std::uint64_t gradient_bytes = shard.count * sizeof(float) + sizeof(Header);
  std::uint64_t most = 0;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const int locals = topology.ranks_on(topology.node_of(rank));
    const int rails = topology.rails();
    const auto served =
        static_cast<std::uint64_t>((rails - topology.local_rank(rank) + locals - 1) / locals);
    std::uint64_t bytes = served * inner_bytes(shard);
    if (locals > 1) {
      bytes += (static_cast<std::uint64_t>(rails) - served) * gradient_bytes;
      bytes += static_cast<std::uint64_t>(locals - 1) * served * outcome_bytes(shard);
    }
    most = std::max(most, bytes);
  }
  return most;
}

/// Every node sends for every rail.
std::uint64_t network_bytes(const CostShape& shape, WireBytes inner_bytes) {
  Topology flat = Topology::uniform(1, 1);
  const Topology& topology = topology_of(shape, flat);
  return static_cast<std::uint64_t>(topology.rails()) * inner_bytes(shard_of(shape, topology));
}

std::uint64_t gather_outcome_bytes(const CostShape& shard) {
  return static_cast<std::uint64_t>(shard.ranks) *
         compress::message_bytes(shard.count, shard.k, shard.codings);
}

std::uint64_t balanced_outcome_bytes(const CostShape& shard) {
  const std::uint64_t count = divide_up(shard.count, shard.ranks);
  const std::uint64_t k = std::min(divide_up(shard.k, shard.ranks), count);
  return gather_outcome_bytes(
      {.ranks = shard.ranks, .count = count, .k = k, .codings = shard.codings});
}

}  // namespace

std::uint64_t two_level_gather_wire_bytes(const CostShape& shape) {
  return wire_bytes(shape, gather_wire_bytes, gather_outcome_bytes);
}

std::uint64_t two_level_gather_network_bytes(const CostShape& shape) {
  return network_bytes(shape, gather_wire_bytes);
}

std::uint64_t two_level_balanced_wire_bytes(const CostShape& shape) {
  return wire_bytes(shape, balanced_wire_bytes, balanced_outcome_bytes);
}

std::uint64_t two_level_balanced_network_bytes(const CostShape& shape) {
  return network_bytes(shape, balanced_wire_bytes);
}

}  // namespace winnow::comm
