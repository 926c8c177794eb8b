// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"

// Sums over the tiles before a tile, in one pass over memory (Merrill, Garland: Single-pass
// Parallel Prefix Scan with Decoupled Look-back, 2016). Blocks draw tiles in order, so whoever
// waits for an earlier tile waits for a block that runs; should that still have a tile before to
// end, it waits for earlier ones only. A tile publishes its own sum, and, once it knows them, the
// sum of all tiles to its end: one word each, written and read whole, so no fence is needed.

namespace winnow::kernels::cuda {

/// A block's room in shared memory for what all its threads are told.
struct TileTicket {
  std::uint32_t tile;
  std::uint32_t is_last;
  std::uint64_t before;              // of look_back: what is known,
  std::uint64_t seen[simt::kWarps];  // and what each warp has found
};

/// The next tile; past the last one there is no more work. Between two calls there must be a
/// barrier.
WINNOW_DEVICE std::uint32_t next_tile(TileTicket& turn, std::uint32_t* ticket) {
  if (simt::thread() == 0) turn.tile = simt::atomic_add(ticket, 1);
  simt::barrier();
  return turn.tile;
}

/// Whether this is the first thread of the block whose `mine` shares make the shares that are done
/// `all`; it then sees what all blocks did before. All threads call it.
WINNOW_DEVICE bool is_last_thread(std::uint32_t* done, std::uint32_t mine, std::uint32_t all) {
  simt::barrier();
  if (simt::thread() != 0) return false;
  simt::fence();  // of all that the barrier has shown to this thread
  const bool last = simt::atomic_add(done, mine) + mine == all;
  simt::fence();
  return last;
}
/// With a share for each block of the grid.
WINNOW_DEVICE bool is_last_thread(std::uint32_t* done) {
  return is_last_thread(done, 1, simt::blocks());
}

/// Whether this block is the last one, for all of its threads.
WINNOW_DEVICE bool is_last_block(TileTicket& turn, std::uint32_t* done, std::uint32_t mine,
                                 std::uint32_t all) {
  const bool last = is_last_thread(done, mine, all);
  if (simt::thread() == 0) turn.is_last = last ? 1 : 0;
  simt::barrier();
  simt::fence();
  return turn.is_last != 0;
}

/// For the block: returns when a block that was there before, as who draws tiles in order knows,
/// has published another word than 0, and sees what that block did before.
WINNOW_DEVICE void wait_for(const std::uint32_t* word) {
  if (simt::thread() == 0) {
    while (simt::published(word) == 0) simt::idle();
    simt::fence();
  }
  simt::barrier();
  simt::fence();
}

/// Two counts below 2^31 that are summed together.
WINNOW_DEVICE constexpr std::uint64_t pair_of(std::uint64_t low, std::uint64_t high) {
  return low | high << 31;
}
WINNOW_DEVICE constexpr std::uint32_t low_of(std::uint64_t pair) {
  return static_cast<std::uint32_t>(pair & 0x7fffffffU);
}
WINNOW_DEVICE constexpr std::uint32_t high_of(std::uint64_t pair) {
  return static_cast<std::uint32_t>(pair >> 31 & 0x7fffffffU);
}

/// A word that a tile publishes is a sum below 2^62 and one of these: its own sum, or the one of
/// all tiles to its end.
inline constexpr std::uint64_t kOwnSum = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kSumToEnd = std::uint64_t{2} << 62;

/// Returns the sum of `mine`, below 2^62, over all tiles before this one, and makes it known to
/// those behind. `tiles` has a word for each tile, 0 at first. All threads of a block call it, and
/// each looks at one tile: hundreds run at a time, and a look at memory takes as long for 256 words
/// as for one. Between two calls there must be a barrier.
WINNOW_DEVICE std::uint64_t look_back(TileTicket& turn, std::uint64_t* tiles, std::uint32_t tile,
                                      std::uint64_t mine) {
  if (simt::thread() == 0) {
    simt::publish(&tiles[tile], (tile == 0 ? kSumToEnd : kOwnSum) | mine);
    turn.before = 0;
  }
  for (std::uint32_t end = tile;; end -= simt::kThreads) {  // the tiles below are to be added
    std::uint64_t word = kSumToEnd;                         // of nothing, before the first tile
    if (simt::thread() < end) {
      const std::uint64_t* const at = &tiles[end - 1 - simt::thread()];
      word = simt::published(at);
      while (word < kOwnSum) {
        simt::idle();
        word = simt::published(at);
      }
    }
    const std::uint32_t to_end = simt::ballot(word >= kSumToEnd);
    const std::uint32_t added = to_end ^ (to_end - 1);  // lanes up to the first that reaches 0
    const bool adds = (added >> simt::lane() & 1) != 0;
    const std::uint64_t sum = simt::warp_sum(adds ? word & (kOwnSum - 1) : std::uint64_t{0});
    if (simt::lane() == 0) {
      turn.seen[simt::thread() / simt::kLanes] = (to_end != 0 ? kSumToEnd : kOwnSum) | sum;
    }
    simt::barrier();
    std::uint64_t before = turn.before;
    bool is_all = false;
    WINNOW_ROLLED
    for (std::uint32_t warp = 0; warp < simt::kWarps && !is_all; ++warp) {
      before += turn.seen[warp] & (kOwnSum - 1);
      is_all = turn.seen[warp] >= kSumToEnd;
    }
    if (is_all) {
      if (tile > 0 && simt::thread() == 0) {
        simt::publish(&tiles[tile], kSumToEnd | (before + mine));
      }
      return before;
    }
    simt::barrier();
    if (simt::thread() == 0) turn.before = before;
  }
}

}  // namespace winnow::kernels::cuda
