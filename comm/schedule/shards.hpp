// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#include "comm/schedule/rounds.hpp"
#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "compress/part.hpp"

namespace winnow::comm {

/// The ranks in two levels: those of this rank's node, and the ranks of each rail that this rank
/// serves. There are as many rails as ranks on the largest node, so each rank serves at least one,
/// and on a smaller node several.
class Rails {
 public:
  /// The world must outlive it. Not collective: a rail is a view of the world, with the world's
  /// queues and tickets.
  Rails(Transport& world, Topology topology);

  const Topology& topology() const { return topology_; }
  int node() const { return node_; }  ///< this rank's
  bool on_node(int rank) const { return topology_.node_of(rank) == node_; }
  /// The ranks of this rank's node, ascending.
  std::span<const int> locals() const { return locals_; }
  /// The rank of this node that serves a rail.
  int server(std::size_t rail) const { return locals()[rail % locals().size()]; }
  /// The transport of a rail, whose rank n is on node n; null if this rank does not serve the rail.
  Transport* transport(std::size_t rail) const { return rails_[rail].get(); }
  /// The ranks of the world that these are.
  std::span<const int> ranks(std::size_t rail) const { return ranks_[rail]; }

 private:
  Topology topology_;
  int node_;
  std::span<const int> locals_;
  std::vector<std::unique_ptr<Transport>> rails_;
  std::vector<std::vector<int>> ranks_;
};

/// The stretch of a part that one rail reduces; a part itself.
struct Shard {
  /// Where a piece of the shard lies: from element `begin` of piece `piece` of the whole part on.
  struct Place {
    std::size_t piece;
    std::uint64_t begin;
  };
  compress::Part part;        ///< its pieces view scratch
  std::vector<Place> places;  ///< by piece
  std::vector<compress::PieceState> states;
  kernels::PlaceArray<compress::Bounds> bounds;  ///< of the states
  // For the current call, on a rank that serves the shard.
  Rounds rounds;
  compress::Owned owned;
};

/// A part cut into one shard per rail: equal ranges of its elements, in order. Sizes, k and owners
/// (the nodes) are the same on all ranks.
struct Shards {
  std::vector<Shard> of_rail;
  const Schedule* inner = nullptr;
  std::size_t parts = 1;  ///< of the bucket
  /// For each piece of the part: 1 if what its residual held went into round 1 of the current call.
  std::vector<std::uint8_t> folded = {};

  /// The number of a part's shard in headers, different for all shards of a bucket.
  std::uint16_t number(std::uint16_t part, std::size_t rail) const {
    return static_cast<std::uint16_t>(part + rail * parts);
  }
};

/// Cuts a part for `rank`. The shards hold the pieces' states.
Shards cut_shards(const compress::Part& part, const Topology& topology, int rank,
                  const Schedule& inner, const compress::Compressor& compressor);

}  // namespace winnow::comm
