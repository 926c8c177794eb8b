// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/split.hpp"

// Sorting by owner without a sort. In a list that ascends the entries of one unit follow each
// other, and an owner has one unit of each group. So
//
// 1. CountUnits: how many entries each unit has, in a table by owner and, for one owner, by group:
//    the order in which they are to stand;
// 2. SumUnits: the sums over the table before each of them: where the unit's entries begin;
// 3. PlaceEntries: each entry to its unit's place, behind those of the unit that come before it. An
//    owner's entries begin with those of its first unit.

namespace winnow::kernels::cuda {

struct SplitTask {
  const std::uint32_t* index;
  const float* value;
  std::uint64_t k;
  Partition partition;
  std::uint32_t* local;
  float* sorted;
  std::uint32_t* begin;
  std::uint32_t* ticket;
  std::uint64_t* tiles;  ///< words of look_back
  std::uint32_t* units;  ///< the table; all zero before the first kernel, as are ticket and tiles

  WINNOW_DEVICE std::uint64_t unit_of(std::uint64_t entry) const {
    return index[entry] / Partition::kUnit;
  }
  /// The unit's place in the table.
  WINNOW_DEVICE std::uint64_t place_of(std::uint64_t unit) const {
    return partition.owner_of_unit(unit) * partition.groups() + unit / partition.owners();
  }
};

struct CountUnits {
  SplitTask task;

  WINNOW_DEVICE void run() const {
    for (std::uint64_t j = simt::grid_thread(); j < task.k; j += simt::grid_threads()) {
      const std::uint64_t unit = task.unit_of(j);
      if (j > 0 && task.unit_of(j - 1) == unit) continue;
      std::uint32_t entries = 1;
      while (j + entries < task.k && task.unit_of(j + entries) == unit) ++entries;
      task.units[task.place_of(unit)] = entries;
    }
  }
};

struct SumUnits {
  SplitTask task;
  struct Shared {
    simt::ScanRoom scan;
    TileTicket turn;
  };

  static constexpr std::uint32_t kUnits = 4;  // of a thread
  static constexpr std::uint32_t kTile = simt::kThreads * kUnits;

  WINNOW_DEVICE void run(Shared& shared) const {
    const std::uint64_t places = task.partition.owners() * task.partition.groups();
    const std::uint64_t tiles = (places + kTile - 1) / kTile;
    while (true) {
      const std::uint32_t tile = next_tile(shared.turn, task.ticket);
      if (tile >= tiles) break;
      const std::uint64_t first = std::uint64_t{tile} * kTile + simt::thread() * kUnits;
      std::uint32_t entries[kUnits];
      std::uint32_t sum = 0;
      for (std::uint32_t u = 0; u < kUnits; ++u) {
        entries[u] = first + u < places ? task.units[first + u] : 0;
        sum += entries[u];
      }
      const simt::Scanned scanned = simt::scan(shared.scan, sum);
      std::uint64_t before =
          look_back(shared.turn, task.tiles, tile, scanned.total) + scanned.before;
      for (std::uint32_t u = 0; u < kUnits && first + u < places; ++u) {
        task.units[first + u] = static_cast<std::uint32_t>(before);
        before += entries[u];
      }
    }
  }
};

struct PlaceEntries {
  SplitTask task;

  WINNOW_DEVICE void run() const {
    for (std::uint64_t j = simt::grid_thread(); j < task.k; j += simt::grid_threads()) {
      const std::uint64_t unit = task.unit_of(j);
      const std::uint64_t at = task.units[task.place_of(unit)] + (j - first_of(unit, j));
      task.local[at] = static_cast<std::uint32_t>(task.partition.local(task.index[j]));
      task.sorted[at] = task.value[j];
    }
    const std::uint64_t owners = task.partition.owners(), groups = task.partition.groups();
    for (std::uint64_t o = simt::grid_thread(); o <= owners; o += simt::grid_threads()) {
      const bool is_end = o == owners || groups == 0;  // without positions there are no entries
      task.begin[o] = is_end ? static_cast<std::uint32_t>(task.k) : task.units[o * groups];
    }
  }

 private:
  /// The first entry of the unit that entry j belongs to.
  WINNOW_DEVICE std::uint64_t first_of(std::uint64_t unit, std::uint64_t j) const {
    std::uint64_t first = j < Partition::kUnit ? 0 : j - (Partition::kUnit - 1), end = j;
    while (first < end) {
      const std::uint64_t middle = first + (end - first) / 2;
      if (task.unit_of(middle) < unit) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    return first;
  }
};

/// A task of Pieces.
struct PositionsOf {
  Partition partition{1, 0};
  std::uint32_t owner;
  const std::uint32_t* local;
  std::uint32_t* index;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t j) const {
    index[j] = static_cast<std::uint32_t>(partition.position(owner, local[j]));
  }
};

/// Tiles of the table.
inline std::uint64_t split_tiles(const Partition& partition) {
  return (partition.owners() * partition.groups() + SumUnits::kTile - 1) / SumUnits::kTile;
}

/// The place of the table in the scratch memory, behind the ticket and the tiles.
inline std::size_t split_units_at(const Partition& partition) {
  return 256 + (split_tiles(partition) * sizeof(std::uint64_t) + 255) / 256 * 256;
}

inline std::size_t split_scratch_bytes(const Partition& partition) {
  return split_units_at(partition) +
         partition.owners() * partition.groups() * sizeof(std::uint32_t);
}

/// `scratch`: split_scratch_bytes, 256-byte aligned, all zero.
inline SplitTask make_split_task(const SplitJob& job, std::byte* scratch) {
  return {.index = job.list.index.data(),
          .value = job.list.value.data(),
          .k = job.list.index.size(),
          .partition = job.partition,
          .local = job.local.data(),
          .sorted = job.value.data(),
          .begin = job.begin.data(),
          .ticket = reinterpret_cast<std::uint32_t*>(scratch),
          .tiles = reinterpret_cast<std::uint64_t*>(scratch + 256),
          .units = reinterpret_cast<std::uint32_t*>(scratch + split_units_at(job.partition))};
}

/// Calls stage(kernel, threads) for each kernel, in order, with the threads that it can make use
/// of.
template <class Stage>
void for_each_split_kernel(const SplitTask& task, const Stage& stage) {
  stage(CountUnits{task}, task.k);
  stage(SumUnits{task}, split_tiles(task.partition) * simt::kThreads);
  stage(PlaceEntries{task}, task.k);
}

}  // namespace winnow::kernels::cuda
