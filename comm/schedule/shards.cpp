// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/shards.hpp"

#include <algorithm>
#include <utility>

#include "comm/transport/subset.hpp"

namespace winnow::comm {
namespace {

using compress::Piece;

/// Elements [begin, end) of a part, not counting gaps, as a shard.
Shard cut_shard(const compress::Part& part, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t kUnit = kernels::Partition::kUnit;
  Shard shard;
  std::uint64_t at = 0;  // the piece's first element
  for (std::size_t i = 0; i < part.pieces.size(); at += part.pieces[i++].elements.size()) {
    const Piece& whole = part.pieces[i];
    const std::uint64_t first = std::max(begin, at);
    const std::uint64_t last = std::min(end, at + whole.elements.size());
    if (first >= last) continue;
    const std::uint64_t base = (shard.part.count + kUnit - 1) / kUnit * kUnit;
    shard.part.pieces.push_back({.elements = whole.elements.subspan(first - at, last - first),
                                 .rounds_to = whole.rounds_to,
                                 .parameter = whole.parameter,
                                 .offset = whole.offset + (first - at),
                                 .base = static_cast<std::uint32_t>(base)});
    shard.part.count = base + (last - first);
    shard.places.push_back({.piece = i, .begin = first - at});
  }
  shard.states.resize(shard.part.pieces.size());
  for (std::size_t i = 0; i < shard.states.size(); ++i) {
    shard.part.pieces[i].state = &shard.states[i];
    shard.states[i].turn = part.pieces[shard.places[i].piece].state->turn;
  }
  return shard;
}

}  // namespace

Rails::Rails(Transport& world, Topology topology)
    : topology_(std::move(topology)),
      node_(topology_.node_of(world.rank())),
      locals_(topology_.members(node_)),
      rails_(static_cast<std::size_t>(topology_.rails())) {
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    ranks_.push_back(topology_.rail(static_cast<int>(rail)));
    if (server(rail) == world.rank()) rails_[rail] = make_subset(world, ranks_.back());
  }
}

Shards cut_shards(const compress::Part& part, const Topology& topology, int rank,
                  const Schedule& inner, const compress::Compressor& compressor) {
  std::uint64_t count = 0;
  for (const Piece& piece : part.pieces) count += piece.elements.size();
  Shards shards{.of_rail = {}, .inner = &inner};
  shards.folded.resize(part.pieces.size());
  for (int rail = 0; rail < topology.rails(); ++rail) {
    const Chunk range = ring_chunk(count, rail, topology.rails());
    Shard& shard = shards.of_rail.emplace_back(cut_shard(part, range.begin, range.end));
    share_out(shard.part, inner, compressor, topology.nodes(), topology.node_of(rank));
  }
  return shards;
}

}  // namespace winnow::comm
