// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm/schedule/balanced.hpp"
#include "comm/schedule/doubling.hpp"
#include "comm/schedule/gather.hpp"
#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/shared.hpp"
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

using WireBytes = std::uint64_t (*)(const CostShape&);
using NodeBytes = std::uint64_t (*)(const CostShape&, int node);

/// Bytes of the busiest rank, if a rail sends `inner_bytes` from a node and ends with messages of
/// `outcome_bytes` in all.
std::uint64_t wire_bytes(const CostShape& shape, NodeBytes inner_bytes, WireBytes outcome_bytes) {
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
    std::uint64_t bytes = served * inner_bytes(shard, node);
    if (locals > 1) {
      bytes += (static_cast<std::uint64_t>(rails) - served) * gradient_bytes;
      bytes += static_cast<std::uint64_t>(locals - 1) * served * outcome_bytes(shard);
    }
    most = std::max(most, bytes);
  }
  return most;
}

/// Every node sends for every rail; node 0 is the busiest.
std::uint64_t network_bytes(const CostShape& shape, NodeBytes inner_bytes) {
  Topology flat = Topology::uniform(1, 1);
  const Topology& topology = topology_of(shape, flat);
  return static_cast<std::uint64_t>(topology.rails()) * inner_bytes(shard_of(shape, topology), 0);
}

std::uint64_t gather_node_bytes(const CostShape& shard, int) {
  return gather_wire_bytes(shard);
}

std::uint64_t balanced_node_bytes(const CostShape& shard, int) {
  return balanced_wire_bytes(shard);
}

std::uint64_t shared_node_bytes(const CostShape& shard, int) {
  return shared_wire_bytes(shard);
}

/// Messages of the busiest rank: within its node, and on the rails that it serves.
std::uint64_t messages(const CostShape& shape, std::uint64_t (*inner_messages)(const CostShape&)) {
  Topology flat = Topology::uniform(1, 1);
  const Topology& topology = topology_of(shape, flat);
  const std::uint64_t inner = inner_messages(shard_of(shape, topology));
  std::uint64_t most = 0;
  for (int node = 0; node < topology.nodes(); ++node) {
    const int locals = topology.ranks_on(node);
    const auto served = divide_up(static_cast<std::uint64_t>(topology.rails()), locals);
    most = std::max(most, 2 * static_cast<std::uint64_t>(locals - 1) * served + served * inner);
  }
  return most;
}

/// Node sums, and the inner schedule as if each rank worked on all shards, since it adds to all.
double pass_bytes(const CostShape& shape, double (*inner_pass_bytes)(const CostShape&)) {
  Topology flat = Topology::uniform(1, 1);
  CostShape between = shape;
  between.ranks = topology_of(shape, flat).nodes();
  return kReducePass * static_cast<double>(shape.count) + inner_pass_bytes(between);
}

std::uint64_t gather_outcome_bytes(const CostShape& shard) {
  return static_cast<std::uint64_t>(shard.ranks) *
         compress::message_bytes(shard.count, shard.k, shard.codings);
}

std::uint64_t doubling_outcome_bytes(const CostShape& shard) {
  return doubling_sum_bytes(shard, shard.ranks);
}

/// Bytes of one sum per owner; also for shared.
std::uint64_t owners_outcome_bytes(const CostShape& shard) {
  const std::uint64_t count = divide_up(shard.count, shard.ranks);
  const std::uint64_t k = std::min(divide_up(shard.k, shard.ranks), count);
  return gather_outcome_bytes(
      {.ranks = shard.ranks, .count = count, .k = k, .codings = shard.codings});
}

}  // namespace

std::uint64_t two_level_gather_wire_bytes(const CostShape& shape) {
  return wire_bytes(shape, gather_node_bytes, gather_outcome_bytes);
}

std::uint64_t two_level_gather_network_bytes(const CostShape& shape) {
  return network_bytes(shape, gather_node_bytes);
}

std::uint64_t two_level_doubling_wire_bytes(const CostShape& shape) {
  return wire_bytes(shape, doubling_rank_bytes, doubling_outcome_bytes);
}

std::uint64_t two_level_doubling_network_bytes(const CostShape& shape) {
  return network_bytes(shape, doubling_rank_bytes);
}

std::uint64_t two_level_gather_messages(const CostShape& shape) {
  return messages(shape, one_to_each_other);
}

double two_level_gather_pass_bytes(const CostShape& shape) {
  return pass_bytes(shape, gather_pass_bytes);
}

std::uint64_t two_level_doubling_messages(const CostShape& shape) {
  return messages(shape, doubling_messages);
}

double two_level_doubling_pass_bytes(const CostShape& shape) {
  return pass_bytes(shape, doubling_pass_bytes);
}

std::uint64_t two_level_balanced_wire_bytes(const CostShape& shape) {
  return wire_bytes(shape, balanced_node_bytes, owners_outcome_bytes);
}

std::uint64_t two_level_balanced_network_bytes(const CostShape& shape) {
  return network_bytes(shape, balanced_node_bytes);
}

std::uint64_t two_level_balanced_messages(const CostShape& shape) {
  return messages(shape, two_to_each_other);
}

double two_level_balanced_pass_bytes(const CostShape& shape) {
  return pass_bytes(shape, balanced_pass_bytes);
}

std::uint64_t two_level_shared_wire_bytes(const CostShape& shape) {
  return wire_bytes(shape, shared_node_bytes, owners_outcome_bytes);
}

std::uint64_t two_level_shared_network_bytes(const CostShape& shape) {
  return network_bytes(shape, shared_node_bytes);
}

std::uint64_t two_level_shared_messages(const CostShape& shape) {
  return messages(shape, shared_messages);
}

double two_level_shared_pass_bytes(const CostShape& shape) {
  return pass_bytes(shape, shared_pass_bytes);
}

}  // namespace winnow::comm
