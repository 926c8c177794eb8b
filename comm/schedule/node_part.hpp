// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/schedule/exchange.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/schedule/shards.hpp"
#include "compress/part.hpp"

namespace winnow::comm {

/// A part that travels in two levels, as the ranks of one node see it: its shards, one per rail,
/// and who serves them.
struct NodePart {
  explicit NodePart(Exchange& part)
      : exchange(part),
        rails(*part.levels.rails),
        shards(part.levels.shards->of_rail),
        inner(*part.levels.shards->inner),
        locals(rails.locals()),
        self(part.wire.rank) {}

  /// Whether this rank serves the rail.
  bool serves(std::size_t rail) const { return rails.transport(rail) != nullptr; }
  /// The piece of the whole part in which a shard's piece lies.
  const compress::Piece& whole(const Shard::Place& place) const {
    return exchange.part.pieces[place.piece];
  }
  /// The number of the shard in headers.
  std::uint16_t number_of(std::size_t rail) const {
    return exchange.levels.shards->number(exchange.header.part, rail);
  }

  Exchange& exchange;
  const Rails& rails;
  std::span<Shard> shards;
  const Schedule& inner;        ///< between nodes
  std::span<const int> locals;  ///< the ranks of this node
  int self;
};

}  // namespace winnow::comm
