// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/sampled_bound.cuh"
#include "kernels/cuda/select_source.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/select_tile.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/tasks.cuh"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

/// The pass over one task. `kOwn`: there are own units. `kMakes`: there is a precondition.
/// `kKeeps`: candidates are what is kept. `kOneSide`: elements of the other side do not compete.
template <bool kOwn, bool kMakes, bool kKeeps, bool kOneSide>
struct TaskPass {
  const SelectTask& task;
  bool prefetches;  ///< the next tile
  /// One side would need more registers than there are.
  static constexpr bool kCountsFar = !kKeeps && !kOneSide;
  /// The place of a candidate: in scratch, or in a list of several parameters.
  using Place = std::conditional_t<kKeeps, std::uint64_t, std::uint32_t>;

  /// The magnitude that competing elements must reach, the one of those far above it, and where
  /// candidates begin.
  struct Bounds {
    std::uint32_t competing, far;
    Place begin;
  };

  /// A warp's statistics of the task so far. Its first thread's own, to save all of them registers.
  struct WarpStats {
    std::uint32_t tiles, highest;
    std::uint32_t
        counted;  ///< candidates that are far above the bound, or what is of the other side
  };
  struct Shared {
    simt::ScanRoom scan, own_scan;
    TileTicket turn;
    std::uint32_t own[kTileUnits / simt::kLanes];  // a bit for each unit of the tile
    std::uint32_t local[kTileUnits];               // the first local number of each, if it is own
    float own_bound;                               // what |acc| of own elements must reach
    DigitRoom digits;
    Bounds bounds;
    WarpStats met[simt::kWarps];
  };

  /// Begins with a tile of the task that the block has drawn among those of all tasks, and goes on
  /// until it draws another task's, which it returns; after one tile without `tickets`.
  WINNOW_DEVICE std::uint32_t run(Shared& shared, std::uint32_t drawn,
                                  std::uint32_t* tickets) const {
    const std::uint32_t bound = kKeeps ? task.bound : find_bound(shared, drawn == task.first_tile);
    if (simt::thread() == 0) shared.bounds = {bound, bound + kNear, kKeeps ? *task.kept : 0};
    if constexpr (!kOwn) simt::barrier();  // else find_own has one
    WarpStats& met = shared.met[simt::thread() / simt::kLanes];
    if (simt::lane() == 0) met = {};
    while (true) {
      drawn = stream(shared, drawn - task.first_tile, tickets);
      if (simt::lane() == 0) ++met.tiles;
      if (drawn - task.first_tile >= pass_tiles(task.count)) break;
      if constexpr (kOwn) simt::barrier();  // before the next tile's own units
    }
    SelectControl* const control = task.control;
    std::uint32_t mine = 0;
    if (simt::lane() == 0) {
      mine = met.tiles;
      simt::atomic_max(&control->highest, met.highest);
      if (met.counted > 0) {
        simt::atomic_add(kOneSide ? &control->other_side : &control->far, met.counted);
      }
    }
    if (is_last_thread(&control->stream_done, mine, pass_tiles(task.count))) {
      if constexpr (kKeeps) {
        report_kept(task, simt::published(&control->candidates));
      } else {
        decide();
      }
    }
    return drawn;
  }

 private:
  /// The bound that competing elements must reach. If it must come from a sample, all wait until
  /// that is taken, for from here on they write what it reads.
  WINNOW_DEVICE std::uint32_t find_bound(Shared& shared, bool is_first) const {
    SelectControl& control = *task.control;
    const SelectBound state = *task.state;
    std::uint32_t bound = 0;
    bool tells = is_first;
    if (task.k == 0) {
      bound = kInfinity;  // nothing reaches it
    } else if (state.k == task.k) {
      bound = magnitude(state.bound);
    } else if (task.sample_runs > 0) {
      tells = take_sample(shared.turn, task);
      if (!tells) {
        wait_for(&control.bound_is_set);
        return simt::published(&control.bound);
      }
      bound = sampled_bound(shared.digits, task);
    }
    if (tells && simt::thread() == 0) {
      simt::publish(&control.bound, bound);
      simt::fence();
      simt::publish(&control.bound_is_set, 1U);
    }
    return bound;
  }

  /// Says of each unit of the tile whether it is own, and where its own numbers begin.
  WINNOW_DEVICE void find_own(Shared& shared, std::uint32_t tile) const {
    if (simt::thread() < kTileUnits) {
      const std::uint32_t first = tile * kSelectTile + simt::thread() * kUnit;
      const std::uint32_t own = simt::ballot(task.own.has(first));
      if (simt::lane() == 0) shared.own[simt::thread() / simt::kLanes] = own;
      shared.local[simt::thread()] = task.own.local(first);
      if (simt::thread() == 0) shared.own_bound = task.own.bound_of_step();
    }
    simt::barrier();
  }

  /// Whether this thread's vector j lies in an own unit.
  WINNOW_DEVICE static bool is_own(const Shared& shared, std::uint32_t j) {
    const std::uint32_t unit = first_of(0, j) / kUnit;
    return kOwn && (shared.own[unit / simt::kLanes] >> unit % simt::kLanes & 1) != 0;
  }

  /// Does a tile and returns the next one, which it draws at once: while the block waits for those
  /// before it, memory brings what comes next.
  WINNOW_DEVICE std::uint32_t stream(Shared& shared, std::uint32_t tile,
                                     std::uint32_t* tickets) const {
    const SelectTile memory(task, tile);
    std::uint32_t drawn = kNoTile;
    if (simt::thread() == 0 && tickets != nullptr) drawn = simt::atomic_add(tickets, 1);
    const std::uint32_t here = memory.whole ? kAllOfThread : memory.elements();
    std::uint32_t finite = 0, reaches = 0;  // a bit for each element, as `here`
    float acc[kSelectVectors][4];
    {
      float gradient[kSelectVectors][4];
      memory.load(here, gradient, acc);
      if constexpr (kOwn) find_own(shared, tile);
      if constexpr (kMakes) memory.make_updates(here, acc, gradient);
      std::uint32_t highest = 0, counted = 0;  // magnitude; elements that WarpStats counts
      WINNOW_UNROLLED
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        const bool own = is_own(shared, j);
        std::uint32_t reaching = 0;
        WINNOW_UNROLLED
        for (unsigned e = 0; e < 4; ++e) {
          acc[j][e] = feedback(gradient[j][e], task.decay, acc[j][e]);
          const std::uint32_t size = magnitude(acc[j][e]), bit = 1U << (4 * j + e);
          const bool is_finite = size < kInfinity;
          const bool on_side = !kOneSide || SideKey(task.side).has(acc[j][e]);
          const bool competes = is_finite && !own && on_side && (here & bit) != 0;
          if (is_finite) finite |= bit;
          if (is_finite && !on_side && (here & bit) != 0) ++counted;
          if (competes && size > highest) highest = size;
          if (kCountsFar && competes && size >= shared.bounds.far) ++counted;
          if (own ? is_finite && !(std::bit_cast<float>(size) < shared.own_bound)
                  : competes && size >= shared.bounds.competing) {
            reaching |= bit;
          }
        }
        reaching &= here;
        reaches |= reaching;
      }
      count_not_finite(shared, here & ~finite);
      meet(shared, highest, counted);
      finite &= here;
    }
    if (simt::thread() == 0) shared.turn.tile = drawn;
    std::uint64_t counts = 0, own_counts = 0;  // of what reaches a bound, 16 bits a vector
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const std::uint64_t count = std::uint64_t{simt::ones_of(vector_of(reaches, j))} << 16 * j;
      (is_own(shared, j) ? own_counts : counts) += count;
    }
    const Places places(simt::scan(shared.scan, counts));
    Places own_places;
    if constexpr (kOwn) own_places = Places(simt::scan(shared.own_scan, own_counts));
    drawn = shared.turn.tile;
    if (prefetches) SelectTile(task, drawn - task.first_tile).prefetch();
    memory.store(
        finite, [&](std::uint32_t j) { return is_own(shared, j) ? 0 : vector_of(reaches, j); },
        acc);
    const std::uint64_t before =
        look_back(shared.turn, task.stream_tiles, tile, pair_of(places.total, own_places.total));
    const std::uint32_t at = low_of(before), own_at = high_of(before);
    if (tile + 1 == select_tiles(task.count) && simt::thread() == 0) {
      task.control->candidates = at + places.total;
      task.control->listed = own_at + own_places.total;
    }
    WINNOW_UNROLLED
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const std::uint32_t first = first_of(tile, j), reaching = vector_of(reaches, j);
      if (is_own(shared, j)) {
        list_own(shared, j, reaching, acc[j], own_at + field(own_places.first, j));
      } else {
        move_candidates(first, reaching, acc[j], shared.bounds.begin + at + field(places.first, j));
      }
    }
    return drawn;
  }

  static constexpr std::uint32_t kNoTile = ~0U;  // behind those of all tasks
  static constexpr auto kUnit = static_cast<std::uint32_t>(Partition::kUnit);

  /// Adds to what this thread's warp has met.
  WINNOW_DEVICE static void meet(Shared& shared, std::uint32_t highest, std::uint32_t counted) {
    highest = simt::warp_max(highest);
    if constexpr (kCountsFar || kOneSide) counted = simt::warp_sum(counted);
    if (simt::lane() != 0) return;
    WarpStats& met = shared.met[simt::thread() / simt::kLanes];
    if (highest > met.highest) met.highest = highest;
    met.counted += counted;
  }

  /// Adds up elements that are not finite: rarely are there any.
  WINNOW_DEVICE void count_not_finite(const Shared& shared, std::uint32_t bits) const {
    if (simt::ballot(bits != 0) == 0) return;
    std::uint32_t own = 0;
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      if (is_own(shared, j)) own += simt::ones_of(vector_of(bits, j));
    }
    const std::uint32_t all = simt::warp_sum(simt::ones_of(bits));
    if constexpr (kOwn) own = simt::warp_sum(own);
    if (simt::lane() != 0) return;
    simt::atomic_add(&task.control->not_finite, all);
    if (own > 0) simt::atomic_add(&task.control->own_not_finite, own);
  }

  /// The elements of a vector that reach the bound, as candidates from number `at` on; back into
  /// the residual where there is no room for them.
  WINNOW_DEVICE void move_candidates(std::uint32_t first, unsigned reaches, const float (&acc)[4],
                                     Place at) const {
    if (reaches == 0) return;
    for (unsigned e = 0; e < 4; ++e) {
      if ((reaches >> e & 1) == 0) continue;
      if (at < task.capacity) {
        task.candidate_index[at] = (kKeeps ? task.base : 0) + first + e;
        task.candidate_value[at] = acc[e];
      } else {
        task.residual[first + e] = acc[e];
      }
      ++at;
    }
  }

  /// Lists elements that this rank owns, as candidates from number `at` on.
  WINNOW_DEVICE void list_own(const Shared& shared, std::uint32_t j, unsigned reaches,
                              const float (&acc)[4], std::uint32_t at) const {
    if (reaches == 0) return;
    const std::uint32_t first = first_of(0, j), local = shared.local[first / kUnit] + first % kUnit;
    for (unsigned e = 0; e < 4; ++e) {
      if ((reaches >> e & 1) == 0) continue;
      if (at < task.own.room) {
        task.own.index[at] = local + e;
        task.own.value[at] = acc[e];
      }
      ++at;
    }
  }

  /// One thread calls it when the pass is over.
  WINNOW_DEVICE void decide() const {
    SelectControl& control = *task.control;
    if (task.k == 0) return;
    const std::uint32_t candidates = simt::published(&control.candidates);
    const std::uint32_t not_finite =
        simt::published(&control.not_finite) - simt::published(&control.own_not_finite);
    const bool whole = candidates < task.k || candidates > task.capacity;
    control.whole = whole ? 1 : 0;
    control.back = !whole ? 0 : candidates < task.capacity ? candidates : task.capacity;
    control.finite = task.competing - not_finite - simt::published(&control.other_side);
    control.scarce = control.finite < task.k ? 1 : 0;
    if (control.scarce != 0) return;
    const std::uint32_t far = kCountsFar ? simt::published(&control.far) : candidates;
    expect_kth(control, task.k, simt::published(&control.bound), far,
               simt::published(&control.highest));
  }
};

/// The pass over all tasks, whose blocks draw the tiles of one task after the other.
template <class Tasks, bool kOwn, bool kMakes, bool kKeeps = false, bool kOneSide = false>
struct StreamPass {
  Tasks tasks;
  bool prefetches;
  using Pass = TaskPass<kOwn, kMakes, kKeeps, kOneSide>;
  /// Without spills.
  static constexpr unsigned kResident = kMakes && kOwn && !kKeeps    ? 2
                                        : kMakes || (kOwn && kKeeps) ? 3
                                                                     : 4;
  struct Shared {
    typename Pass::Shared pass;
    typename Tasks::Room room;
  };

  WINNOW_DEVICE void run(Shared& shared) const {
    std::uint32_t* const tickets = tasks.tickets();
    std::uint32_t drawn = next_tile(shared.pass.turn, tickets);
    // Where each block can have a tile, none takes two because it came first.
    std::uint32_t* const more = tasks.tiles() > simt::blocks() ? tickets : nullptr;
    while (drawn < tasks.tiles()) {
      const SelectTask& task = tasks.fetch(shared.room, drawn);
      drawn = Pass{task, prefetches}.run(shared.pass, drawn, more);
    }
  }
};

}  // namespace winnow::kernels::cuda
