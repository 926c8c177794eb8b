// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/schedule/exchange.hpp"
#include "comm/schedule/schedule.hpp"
#include "compress/message.hpp"
#include "compress/part.hpp"

namespace winnow::comm {

/// A reduce-scatter of compressed shards; not in the table of schedules, since it does not end with
/// the same sum on all ranks. One round, the first of `balanced` with contiguous owners: each rank
/// sends every other rank d what it keeps of shard d, and adds what came for its own shard in rank
/// order. All of its own acc goes into that sum: position i is ((0 + m[0][i]) + m[1][i]) + ...,
/// where m[self] is acc. One member function per stage, in this order; each may throw.
class Scatter {
 public:
  /// Exchange d is of shard d, which is a part of its own; all shards have one size.
  explicit Scatter(std::span<Exchange> shards);

  /// Error feedback and selection of every shard; exchanges messages.
  void exchange();
  /// Leaves the sum, times the factor, as WholeSum of the own shard, by its positions. Returns
  /// whether everything that this rank has seen is finite: gradients, messages and sum.
  bool sum();
  /// Once all ranks have found everything finite: writes the sum to the elements of the own shard,
  /// whose residual it has emptied but for what these cannot hold. Those of other shards hold
  /// anything.
  void write();

 private:
  void contribute();
  void await();

  std::span<Exchange> shards_;
  std::size_t self_;
  Exchange& own_;
  std::span<float> sum_, acc_;                           // of the own shard
  std::span<std::span<std::byte>> messages_, incoming_;  // by receiver, and by sender
  std::span<std::uint64_t> received_;
};

/// Plans name it.
extern const Schedule kScatter;

/// A part's reduce-scatter by the transport, in place; the sum is left in the ring_chunk of this
/// rank, and other elements hold anything. What compressed calls have left in the residual travels
/// with the first dense call.
extern const Schedule kDenseScatter;

}  // namespace winnow::comm
