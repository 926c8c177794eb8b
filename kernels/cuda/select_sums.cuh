// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/search.cuh"
#include "kernels/cuda/select_cut.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/sums_task.hpp"
#include "kernels/cuda/tasks.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/vectors.cuh"

// Sums and selection without a pass over what this rank owns.
//
// 1. FindSlices: where each term, and the list of own elements that reach the bound, enters each
//    tile of own elements.
// 2. SumTouched: tile by tile, what terms name is marked and summed in rank order in shared memory;
//    acc is read only there. These sums are written, and those of them and of the list that reach
//    the bound become candidates, both in order by look-back.
// 3. At least k candidates: nothing else can be among the k largest, for where no term is, the sum
//    is acc, and all acc that reach the bound are listed. Else FillSums and PutSums write all sums,
//    to be selected from. Where a sum is not finite nothing is: NaN everywhere is what makes the
//    last kernel name the first k elements, as 0. Where terms name more than there is room for,
//    the sums beyond it are lost, as the result says.
// 4. Cut, as in feedback_select.
//
// If all sums that reach a given bound must be kept, every own element that does is listed.
// SumTouched then does it all: its candidates go to the message, behind those of parameters before.
//
// A kernel that has nothing to do returns at once, so a step is the same launches whatever the
// numbers are.

namespace winnow::kernels::cuda {

using OneSums = OneTask<SumsTask>;
using ManySums = ManyTasks<SumsTask>;

/// A warp takes a tile, and each of its threads some lists.
template <class Tasks>
struct FindSlices {
  Tasks tasks;

  WINNOW_DEVICE void run() const {
    const auto warps = static_cast<std::uint32_t>(simt::grid_threads() / simt::kLanes);
    for (auto tile = static_cast<std::uint32_t>(simt::grid_thread() / simt::kLanes);
         tile < tasks.tiles(); tile += warps) {
      const SumsTask& task = tasks.at(tile);
      const std::uint32_t mine = tile - task.select.first_tile;
      find(task, mine);
      if (mine + 1 == pass_tiles(task.select.count)) find(task, mine + 1);
    }
  }

 private:
  /// Where each list enters a tile, or ends.
  WINNOW_DEVICE static void find(const SumsTask& task, std::uint32_t tile) {
    const std::uint32_t lists = task.term_count + 1;
    const std::uint64_t end = task.begin + task.select.count;
    const std::uint64_t first = task.begin + std::uint64_t{tile} * kSumsTile;
    for (std::uint32_t list = simt::lane(); list < lists; list += simt::kLanes) {
      if (list == task.own.self) continue;  // acc comes from the residual
      const bool is_term = list < task.term_count;
      const std::uint32_t* const index = is_term ? task.terms[list].index : task.own.index;
      const std::uint64_t size = is_term ? task.terms[list].count : task.listed();
      task.slices[std::uint64_t{tile} * lists + list] =
          static_cast<std::uint32_t>(first_not_below(index, size, first < end ? first : end));
    }
  }
};

/// The sums of one task. `kKeeps`: candidates are what is kept.
template <bool kKeeps>
struct TaskSums {
  const SumsTask& task;
  static constexpr std::uint32_t kWordBits = 32;
  static constexpr std::uint32_t kMine = kSumsTile / simt::kThreads;  // elements a thread emits

  struct Shared {
    float sum[kSumsTile];
    std::uint32_t touched[kSumsTile / kWordBits], listed[kSumsTile / kWordBits];  // bits
    simt::ScanRoom scan;
    TileTicket turn;
  };

  /// Begins with a tile of the task that the block has drawn among those of all tasks, and goes on
  /// until it draws another task's, which it returns.
  WINNOW_DEVICE std::uint32_t run(Shared& shared, std::uint32_t drawn,
                                  std::uint32_t* tickets) const {
    SelectControl& control = *task.select.control;
    const std::uint32_t tiles = pass_tiles(task.select.count);
    const std::uint32_t bound = magnitude(task.accumulated->listed_by);
    const std::uint64_t begin = kKeeps ? *task.select.kept : 0;
    WarpStats met = {};
    std::uint32_t mine = 0;
    for (std::uint32_t tile = drawn - task.select.first_tile; tile < tiles;
         tile = drawn - task.select.first_tile) {
      add(shared, tile);
      emit(shared, tile, {bound, begin}, met);
      ++mine;
      drawn = next_tile(shared.turn, tickets);
    }
    met = {simt::warp_max(met.highest), simt::warp_sum(met.far)};
    if (simt::lane() == 0) {
      simt::atomic_max(&control.highest, met.highest);
      simt::atomic_add(&control.far, met.far);
    }
    if (is_last_thread(&control.stream_done, mine, tiles)) {
      if constexpr (kKeeps) {
        const bool refused = simt::published(&control.not_finite) != 0;
        report_kept(task.select, refused ? 0 : simt::published(&control.candidates));
      } else {
        decide(bound);
      }
    }
    return drawn;
  }

 private:
  /// A magnitude that candidates reach, and how many there are of parameters before.
  struct Candidates {
    std::uint32_t bound;
    std::uint64_t begin;
  };

  /// The largest magnitude that a thread has met, and how many candidates far above the bound.
  struct WarpStats {
    std::uint32_t highest, far;
  };

  /// Calls each(entry, i) for the entries of a list, the own one behind the terms, in a tile.
  template <class Each>
  WINNOW_DEVICE void for_each_entry(std::uint32_t list, const std::uint32_t* index,
                                    std::uint32_t tile, const Each& each) const {
    const std::uint32_t* const slices =
        task.slices + std::uint64_t{tile} * (task.term_count + 1) + list;
    const std::uint32_t end = slices[task.term_count + 1];
    const auto base = static_cast<std::uint32_t>(task.begin + std::uint64_t{tile} * kSumsTile);
    for (std::uint32_t j = slices[0] + simt::thread(); j < end; j += simt::kThreads) {
      each(j, index[j] - base);
    }
  }

  WINNOW_DEVICE static bool is_set(const std::uint32_t* bits, std::uint32_t i) {
    return (bits[i / kWordBits] >> i % kWordBits & 1) != 0;
  }
  WINNOW_DEVICE static void set(std::uint32_t* bits, std::uint32_t i) {
    simt::atomic_or(&bits[i / kWordBits], 1U << i % kWordBits);
  }

  /// Sums what terms name, in rank order, and leaves the value of what is only listed.
  WINNOW_DEVICE void add(Shared& shared, std::uint32_t tile) const {
    for (std::uint32_t i = simt::thread(); i < kSumsTile; i += simt::kThreads) shared.sum[i] = 0;
    for (std::uint32_t w = simt::thread(); w < kSumsTile / kWordBits; w += simt::kThreads) {
      shared.touched[w] = shared.listed[w] = 0;
    }
    simt::barrier();
    for (std::uint32_t rank = 0; rank < task.term_count; ++rank) {
      if (rank == task.own.self) continue;
      for_each_entry(rank, task.terms[rank].index, tile,
                     [&](std::uint32_t, std::uint32_t i) { set(shared.touched, i); });
    }
    simt::barrier();
    for (std::uint32_t rank = 0; rank < task.term_count; ++rank) {
      if (rank > 0) simt::barrier();
      if (rank == task.own.self) {
        for (std::uint32_t i = simt::thread(); i < kSumsTile; i += simt::kThreads) {
          if (is_set(shared.touched, i)) shared.sum[i] += task.acc(tile * kSumsTile + i);
        }
        continue;
      }
      const DeviceTerm term = task.terms[rank];
      with_coding(term.values, [&](auto coding) {
        for_each_entry(rank, term.index, tile, [&](std::uint32_t j, std::uint32_t i) {
          shared.sum[i] += value_at<decltype(coding)>(term.values, j);
        });
      });
    }
    for_each_entry(task.term_count, task.own.index, tile, [&](std::uint32_t j, std::uint32_t i) {
      set(shared.listed, i);
      if (!is_set(shared.touched, i)) shared.sum[i] = task.own.value[j];
    });
    simt::barrier();
  }

  /// Writes the tile's sums and candidates. A thread has kMine elements that follow each other.
  WINNOW_DEVICE void emit(Shared& shared, std::uint32_t tile, const Candidates& candidates,
                          WarpStats& met) const {
    SelectControl& control = *task.select.control;
    const std::uint32_t first = simt::thread() * kMine, shift = first % kWordBits;
    constexpr std::uint32_t kMask = (1U << kMine) - 1;
    const std::uint32_t touched = shared.touched[first / kWordBits] >> shift & kMask;
    const std::uint32_t listed = shared.listed[first / kWordBits] >> shift & kMask;
    std::uint32_t reaching = 0;
    bool finite = true;
    for (std::uint32_t left = touched | listed; left != 0; left &= left - 1) {
      const std::uint32_t e = simt::lowest_one(left);
      const std::uint32_t size = magnitude(shared.sum[first + e]);
      met.highest = size > met.highest ? size : met.highest;
      finite = finite && size < kInfinity;
      const bool reaches = size >= candidates.bound;
      reaching |= (reaches ? 1U : 0U) << e;
      met.far += reaches && size - candidates.bound >= kNear ? 1 : 0;
    }
    if (!finite) simt::atomic_or(&control.not_finite, 1);
    const simt::Scanned scanned =
        simt::scan(shared.scan, pair_of(simt::ones_of(touched), simt::ones_of(reaching)));
    const std::uint64_t before =
        look_back(shared.turn, task.select.stream_tiles, tile, scanned.total);
    const std::uint32_t local = tile * kSumsTile + first;
    std::uint32_t at = low_of(before + scanned.before);
    for (std::uint32_t left = touched; left != 0; left &= left - 1, ++at) {
      const std::uint32_t e = simt::lowest_one(left);
      if (at >= task.touched_room) break;
      task.touched[at] = task.select.base + local + e;
      task.sum[at] = shared.sum[first + e];
    }
    std::uint64_t to = candidates.begin + high_of(before + scanned.before);
    for (std::uint32_t left = reaching; left != 0; left &= left - 1, ++to) {
      const std::uint32_t e = simt::lowest_one(left);
      if (to >= task.select.capacity) break;
      task.select.candidate_index[to] = (kKeeps ? task.select.base : 0) + local + e;
      task.select.candidate_value[to] = shared.sum[first + e];
    }
    if (tile + 1 == pass_tiles(task.select.count) && simt::thread() == 0) {
      const std::uint32_t named = low_of(before + scanned.total);
      *task.touched_count = named < task.touched_room ? named : task.touched_room;
      simt::publish(&control.overflow, named > task.touched_room ? 1U : 0U);
      simt::publish(&control.candidates, high_of(before + scanned.total));
    }
  }

  /// One thread calls it when all tiles are summed.
  WINNOW_DEVICE void decide(std::uint32_t bound) const {
    SelectControl& control = *task.select.control;
    const std::uint32_t k = task.select.k, candidates = simt::published(&control.candidates);
    const bool refused = simt::published(&control.not_finite) != 0;
    const bool overflow = simt::published(&control.overflow) != 0;
    // A list that did not find room lacks what may matter, and so do candidates.
    const bool is_listed = task.accumulated->listed <= task.own.room;
    const bool whole = refused || !is_listed || candidates < k || candidates > task.select.capacity;
    if (!is_listed) control.candidates = static_cast<std::uint32_t>(task.accumulated->listed);
    control.whole = whole ? 1 : 0;
    control.scarce = refused ? 1 : 0;
    control.keeps_bound = refused || overflow ? 1 : 0;
    control.finite = refused ? 0 : task.select.count;
    if (refused) return;
    expect_kth(control, k, bound, simt::published(&control.far),
               whole ? kInfinity : simt::published(&control.highest));
  }
};

/// The sums of all tasks, whose blocks draw the tiles of one task after the other.
template <class Tasks, bool kKeeps = false>
struct SumTouched {
  Tasks tasks;
  using Sums = TaskSums<kKeeps>;
  static constexpr unsigned kResident = 4;
  struct Shared {
    typename Sums::Shared sums;
    typename Tasks::Room room;
  };

  WINNOW_DEVICE void run(Shared& shared) const {
    std::uint32_t drawn = next_tile(shared.sums.turn, tasks.tickets());
    while (drawn < tasks.tiles()) {
      const SumsTask& task = tasks.fetch(shared.room, drawn);
      drawn = Sums{task}.run(shared.sums, drawn, tasks.tickets());
    }
  }
};

template <class Tasks>
struct FillSums {
  Tasks tasks;

  WINNOW_DEVICE void run() const {
    const auto nothing = std::bit_cast<float>(0x7fc00000U);  // NaN
    for (std::uint32_t tile = simt::block(); tile < tasks.tiles(); tile += simt::blocks()) {
      const SumsTask& task = tasks.at(tile);
      const SelectControl& control = *task.select.control;
      if (control.whole == 0) continue;
      const bool refused = control.not_finite != 0;
      const std::uint32_t begin = (tile - task.select.first_tile) * kSumsTile;
      for (std::uint32_t j = simt::thread(); j < kSumsTile; j += simt::kThreads) {
        const std::uint32_t i = begin + j;
        if (i < task.select.count) task.select.residual[i] = refused ? nothing : task.acc(i);
      }
    }
  }
};

template <class Tasks>
struct PutSums {
  Tasks tasks;

  WINNOW_DEVICE void run() const {
    for (std::uint32_t tile = simt::block(); tile < tasks.tiles(); tile += simt::blocks()) {
      const SumsTask& task = tasks.at(tile);
      const SelectControl& control = *task.select.control;
      if (control.whole == 0 || control.not_finite != 0) continue;
      const std::uint32_t begin = (tile - task.select.first_tile) * kSumsTile;
      const std::uint64_t end = *task.touched_count;
      for (std::uint32_t i = simt::thread(); i < kSumsTile; i += simt::kThreads) {
        const std::uint32_t j = begin + i;
        if (j < end) task.select.residual[task.touched[j] - task.select.base] = task.sum[j];
      }
    }
  }
};

/// Calls stage(kernel, blocks) for each kernel of a step, in order, with the blocks that it
/// can make use of for so many tiles.
template <class Tasks, class Stage>
void for_each_sums_kernel(const Tasks& tasks, std::uint64_t tiles, const Stage& stage) {
  stage(FindSlices<Tasks>{tasks}, (tiles - 1) / simt::kWarps + 1);
  stage(SumTouched<Tasks>{tasks}, tiles);
  stage(FillSums<Tasks>{tasks}, tiles);
  stage(PutSums<Tasks>{tasks}, tiles);
  stage(Cut<Tasks>{tasks}, tiles);
}

/// Calls stage(kernel) for a selection that keeps all that reaches a bound.
template <class Stage>
void for_each_keep_kernel(const SumsTask& task, const Stage& stage) {
  const OneSums tasks{task};
  const std::uint64_t tiles = pass_tiles(task.select.count);
  stage(FindSlices<OneSums>{tasks}, (tiles - 1) / simt::kWarps + 1);
  stage(SumTouched<OneSums, true>{tasks}, tiles);
}

}  // namespace winnow::kernels::cuda
