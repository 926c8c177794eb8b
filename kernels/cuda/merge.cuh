// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/merge.hpp"

// The union of two lists, a and b, in one pass (merge path: Odeh, Green, Mwassi, Shmueli, Birk:
// Merge Path - Parallel Merging Made Simple, 2012). Think of the entries of both in one row, by
// position and, at one position, the entry of a first.
//
// 1. A tile is an equal stretch of the row. Where it begins in each list is a binary search; a
//    position that both name is never cut in two, so a tile may have an entry more or less.
// 2. The block loads its stretch, each thread merges 8 entries of it in registers.
// 3. How many entries of the union come before those of a thread: a scan, and look-back.
// 4. The tile's union, put together in shared memory, goes out in one piece.

namespace winnow::kernels::cuda {

/// Entries of a thread, and of a tile.
inline constexpr std::uint32_t kMergeEntries = 8;
inline constexpr std::uint32_t kMergeTile = simt::kThreads * kMergeEntries;

/// A list of positions.
template <class Count>
struct Positions {
  const std::uint32_t* index;
  Count size;
};

/// How many entries of each list come before a cut.
template <class Count>
struct MergeCut {
  Count a, b;
};

/// The cut behind `entries` entries of the row, or behind one more where that is at the position of
/// the one before it.
template <class Count>
WINNOW_DEVICE MergeCut<Count> cut_row(const Positions<Count>& a, const Positions<Count>& b,
                                      Count entries) {
  Count low = entries > b.size ? entries - b.size : 0;
  Count high = entries < a.size ? entries : a.size;
  while (low <
         high) {  // the fewest of a behind which the next lies above all of b that is left of it
    const Count middle = low + (high - low) / 2;
    if (a.index[middle] <= b.index[entries - middle - 1]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  Count of_b = entries - low;
  if (low > 0 && of_b < b.size && a.index[low - 1] == b.index[of_b]) ++of_b;
  return {low, of_b};
}

struct MergeTask {
  Positions<std::uint64_t> a, b;
  const float *value_a, *value_b;
  std::uint32_t* index;
  float* value;
  std::uint64_t* size;
  std::uint32_t* ticket;
  std::uint64_t* tiles;  ///< words of look_back

  WINNOW_DEVICE std::uint64_t tile_count() const {
    return (a.size + b.size + kMergeTile - 1) / kMergeTile;
  }
};

struct Merge {
  MergeTask task;
  struct Shared {
    simt::ScanRoom scan;
    TileTicket turn;
    MergeCut<std::uint64_t> cut[2];  // where the tile begins and ends
    // Its entries, those of a first; then its union.
    std::uint32_t index[kMergeTile + 1];
    float value[kMergeTile + 1];
  };

  WINNOW_DEVICE void run(Shared& shared) const {
    while (true) {
      const std::uint32_t tile = next_tile(shared.turn, task.ticket);
      if (tile >= task.tile_count()) break;
      merge_tile(shared, tile);
    }
  }

 private:
  WINNOW_DEVICE void merge_tile(Shared& shared, std::uint32_t tile) const {
    if (simt::thread() < 2) {
      const std::uint64_t entries = (std::uint64_t{tile} + simt::thread()) * kMergeTile;
      const std::uint64_t all = task.a.size + task.b.size;
      shared.cut[simt::thread()] = cut_row(task.a, task.b, entries < all ? entries : all);
    }
    simt::barrier();
    const MergeCut<std::uint64_t> from = shared.cut[0];
    const auto size_a = static_cast<std::uint32_t>(shared.cut[1].a - from.a);
    const auto size_b = static_cast<std::uint32_t>(shared.cut[1].b - from.b);
    for (std::uint32_t i = simt::thread(); i < size_a + size_b; i += simt::kThreads) {
      if (i < size_a) {
        shared.index[i] = task.a.index[from.a + i];
        shared.value[i] = task.value_a[from.a + i];
      } else {
        shared.index[i] = task.b.index[from.b + (i - size_a)];
        shared.value[i] = task.value_b[from.b + (i - size_a)];
      }
    }
    simt::barrier();

    std::uint32_t position[kMergeEntries];
    float sum[kMergeEntries];
    const std::uint32_t mine = merge_entries(shared, size_a, size_b, position, sum);
    const simt::Scanned scanned = simt::scan(shared.scan, mine);
    const std::uint64_t before = look_back(shared.turn, task.tiles, tile, scanned.total);
    const auto total = static_cast<std::uint32_t>(scanned.total);
    for (std::uint32_t s = 0; s < kMergeEntries; ++s) {
      if (s >= mine) continue;
      shared.index[scanned.before + s] = position[s];
      shared.value[scanned.before + s] = sum[s];
    }
    simt::barrier();
    for (std::uint32_t i = simt::thread(); i < total; i += simt::kThreads) {
      task.index[before + i] = shared.index[i];
      task.value[before + i] = shared.value[i];
    }
    if (tile + 1 == task.tile_count() && simt::thread() == 0) *task.size = before + total;
  }

  /// This thread's share of the union; returns how many entries that is. A share of one entry more
  /// than kMergeEntries ends with a position that both lists name.
  WINNOW_DEVICE static std::uint32_t merge_entries(const Shared& shared, std::uint32_t size_a,
                                                   std::uint32_t size_b,
                                                   std::uint32_t (&position)[kMergeEntries],
                                                   float (&sum)[kMergeEntries]) {
    const Positions<std::uint32_t> a{shared.index, size_a}, b{shared.index + size_a, size_b};
    const std::uint32_t all = size_a + size_b, begin = simt::thread() * kMergeEntries;
    const std::uint32_t end = begin + kMergeEntries;
    const bool is_last = simt::thread() + 1 == simt::kThreads;
    const MergeCut<std::uint32_t> from = cut_row(a, b, begin < all ? begin : all);
    const MergeCut<std::uint32_t> to = cut_row(a, b, end < all && !is_last ? end : all);
    std::uint32_t next_a = from.a, next_b = from.b, count = 0;
    for (std::uint32_t s = 0; s < kMergeEntries; ++s) {
      const bool has_a = next_a < to.a, has_b = next_b < to.b;
      const std::uint32_t of_a = has_a ? a.index[next_a] : 0, of_b = has_b ? b.index[next_b] : 0;
      const bool takes_a = has_a && (!has_b || of_a <= of_b);
      const bool takes_b = has_b && (!has_a || of_b <= of_a);
      const float value_a = takes_a ? shared.value[next_a] : 0;
      const float value_b = takes_b ? shared.value[size_a + next_b] : 0;
      position[s] = takes_a ? of_a : of_b;
      sum[s] = takes_a && takes_b ? value_a + value_b : takes_a ? value_a : value_b;
      next_a += takes_a ? 1 : 0;
      next_b += takes_b ? 1 : 0;
      count += takes_a || takes_b ? 1 : 0;
    }
    return count;
  }
};

inline std::uint64_t merge_tiles(std::size_t entries) {
  return (entries + kMergeTile - 1) / kMergeTile;
}

/// The ticket, and a word for each tile.
inline std::size_t merge_scratch_bytes(std::size_t entries) {
  return 256 + merge_tiles(entries) * sizeof(std::uint64_t);
}

/// `scratch`: merge_scratch_bytes of the entries, 256-byte aligned.
inline MergeTask make_merge_task(const MergeJob& job, std::byte* scratch) {
  const SparseView &a = job.first, &b = job.second;
  return {.a = {a.index.data(), a.index.size()},
          .b = {b.index.data(), b.index.size()},
          .value_a = a.value.data(),
          .value_b = b.value.data(),
          .index = job.index.data(),
          .value = job.value.data(),
          .size = job.size,
          .ticket = reinterpret_cast<std::uint32_t*>(scratch),
          .tiles = reinterpret_cast<std::uint64_t*>(scratch + 256)};
}

}  // namespace winnow::kernels::cuda
