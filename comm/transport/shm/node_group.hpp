// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>
#include <winnow/reduce_op.hpp>

#include "comm/transport/shm/node_memory.hpp"

namespace winnow::comm {

/// Shared memory of the ranks of a communicator if all of them are on one node: a look at a word
/// shows that one has aborted, where a probe for a message would let MPI work; and few elements are
/// reduced without messages.
class [[gnu::visibility("default")]] NodeGroup {
 public:
  NodeGroup() = default;  // none
  /// `memory` has memory_bytes(ranks), the same on all ranks.
  NodeGroup(NodeMemory memory, int rank, int ranks);
  static std::size_t memory_bytes(int ranks);

  explicit operator bool() const { return static_cast<bool>(memory_); }

  /// There must be a group. Any thread.
  void raise_alarm() noexcept;
  bool alarm_is_raised() const noexcept;

  /// Whether all_reduce takes so many bytes.
  bool takes(std::size_t bytes) const { return memory_ && bytes <= most_; }
  /// elements = op over the ranks' elements, in rank order, so with the same bits on all ranks; in
  /// memory of the host. Waits for the other ranks; at times it calls `look`, which must let MPI
  /// work, and ends the wait by an exception. Throws CommError if ranks differ in elements or op.
  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  const std::function<void()>& look);

 private:
  struct RankInfo;
  struct Board;

  Board& board() const;
  RankInfo& info(int rank) const;
  /// A rank's room for its elements, or (rank == ranks_) that for their reduction.
  Elements room(int rank, const Elements& like) const;
  /// Returns when all ranks have arrived here as often as this one.
  void arrive(const std::function<void()>& look);
  void expect_same_shape() const;

  NodeMemory memory_;
  int rank_ = 0, ranks_ = 0;
  std::size_t most_ = 0;     // bytes of a room
  std::uint64_t calls_ = 0;  // of all_reduce
  std::uint64_t arrivals_ = 0;
};

}  // namespace winnow::comm
