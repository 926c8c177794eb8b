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
#include "kernels/cuda/select_cut.cuh"
#include "kernels/cuda/select_source.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/tasks.cuh"
#include "kernels/cuda/vectors.cuh"

// Exact selection in one pass over memory, without the host.
//
// 1. StreamPass: under a bound nothing is expected to be among the k largest. It is the one carried
//    from the last step, or, on a parameter's first, one from a sample. acc goes into the residual;
//    where |acc| reaches the bound it moves on into the candidates, in index order, leaving 0.
//    Candidates beyond their room stay where they are. Where acc is not finite the residual stays,
//    and the gradient is marked by NaN: where acc is finite, the gradient is. Elements of the other
//    side stay in the residual. So do own units, and what reaches their bound is listed.
// 2. Cut, of the candidates; fewer than k, or more than there is room for, do not serve: they go
//    back into the residual, and from there on the whole residual stands for the candidates.
// 3. ClearMarks, where something is not finite and the gradient is to be zero.
//
// If all that reaches a given bound must be kept, StreamPass does it all: its candidates go to
// the message, behind those of parameters before. Only ClearMarks may follow.
//
// A kernel that has nothing to do returns at once, so a step is the same launches whatever the
// numbers are. Fewer than k finite elements on the side: all of them are kept, and the lowest
// positions of others, as 0.

namespace winnow::kernels::cuda {

/// The pass over one task. `kOwn`: there are own units. `kMakes`: there is a precondition.
/// `kKeeps`: candidates are what is kept. `kOneSide`: elements of the other side do not compete.
template <bool kOwn, bool kMakes, bool kKeeps, bool kOneSide>
struct TaskPass {
  const SelectTask& task;
  bool prefetches;  ///< the next tile
  /// The place of a candidate: in scratch, or in a list of several parameters.
  using Place = std::conditional_t<kKeeps, std::uint64_t, std::uint32_t>;

  /// The magnitude that competing elements must reach, and where candidates begin.
  struct Bounds {
    std::uint32_t competing;
    Place begin;
  };

  /// What a warp has met of the task. Its first thread's own, to save all of them registers.
  struct Met {
    std::uint32_t tiles, highest, other_side;
  };
  struct Shared {
    simt::ScanRoom scan, own_scan;
    Turn turn;
    std::uint32_t own[kTileUnits / simt::kLanes];  // a bit for each unit of the tile
    std::uint32_t local[kTileUnits];               // the first local number of each, if it is own
    float own_bound;                               // what |acc| of own elements must reach
    DigitRoom digits;
    Bounds bounds;
    Met met[simt::kWarps];
  };

  /// Begins with a tile of the task that the block has drawn among those of all tasks, and goes on
  /// until it draws another task's, which it returns; after one tile without `tickets`.
  WINNOW_DEVICE std::uint32_t run(Shared& shared, std::uint32_t drawn,
                                  std::uint32_t* tickets) const {
    const std::uint32_t bound = kKeeps ? task.bound : find_bound(shared, drawn == task.first_tile);
    if (simt::thread() == 0) shared.bounds = {bound, kKeeps ? *task.kept : 0};
    if constexpr (!kOwn) simt::barrier();  // else find_own has one
    Met& met = shared.met[simt::thread() / simt::kLanes];
    if (simt::lane() == 0) met = {0, 0, 0};
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
      if (met.other_side > 0) simt::atomic_add(&control->other_side, met.other_side);
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
  /// The bound that competing elements must reach. If it must come from a sample, the block of the
  /// first tile takes it and the others wait, for from here on they write what it reads.
  WINNOW_DEVICE std::uint32_t find_bound(Shared& shared, bool is_first) const {
    SelectControl& control = *task.control;
    const SelectBound state = *task.state;
    std::uint32_t bound = 0;
    if (task.k == 0) {
      bound = kInfinity;  // nothing reaches it
    } else if (state.k == task.k) {
      bound = magnitude(state.bound);
    } else if (task.sample_runs > 0 && !is_first) {
      wait_for(&control.bound_is_there);
      return simt::published(&control.bound);
    } else if (task.sample_runs > 0) {
      bound = sampled_bound(shared.digits, task);
    }
    if (is_first && simt::thread() == 0) {
      simt::publish(&control.bound, bound);
      simt::fence();
      simt::publish(&control.bound_is_there, 1U);
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
    const bool whole = is_whole(tile);
    std::uint32_t drawn = kNoTile;
    if (simt::thread() == 0 && tickets != nullptr) drawn = simt::atomic_add(tickets, 1);
    const std::uint32_t here = whole ? kAll : elements_of(tile);
    std::uint32_t finite = 0, reaches = 0;  // a bit for each element, as `here`
    float acc[kSelectVectors][4];
    {
      float gradient[kSelectVectors][4];
      load(tile, whole, here, gradient, acc);
      if constexpr (kOwn) find_own(shared, tile);
      if constexpr (kMakes) make_updates(tile, whole, here, acc, gradient);
      std::uint32_t highest = 0, aside = 0;  // magnitude; elements of the other side
      WINNOW_UNROLLED
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        const bool own = is_own(shared, j);
        std::uint32_t reaching = 0;
        WINNOW_UNROLLED
        for (unsigned e = 0; e < 4; ++e) {
          acc[j][e] = feedback(gradient[j][e], task.decay, acc[j][e]);
          const std::uint32_t size = magnitude(acc[j][e]), bit = 1U << (4 * j + e);
          const bool is_there = size < kInfinity;
          const bool on_side = !kOneSide || SideKey(task.side).has(acc[j][e]);
          const bool competes = is_there && !own && on_side && (here & bit) != 0;
          if (is_there) finite |= bit;
          if (is_there && !on_side) aside |= bit;
          if (competes && size > highest) highest = size;
          if (own ? is_there && !(std::bit_cast<float>(size) < shared.own_bound)
                  : competes && size >= shared.bounds.competing) {
            reaching |= bit;
          }
        }
        reaching &= here;
        reaches |= reaching;
      }
      count_not_finite(shared, here & ~finite);
      meet(shared, highest, here & aside);
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
    if (prefetches) prefetch(drawn - task.first_tile);
    store(shared, tile, whole, finite, reaches, acc);
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

  /// Bits of all elements of a thread's vectors, and those of vector j.
  static constexpr std::uint32_t kAll = (1U << 4 * kSelectVectors) - 1;
  WINNOW_DEVICE static unsigned vector_of(std::uint32_t bits, std::uint32_t j) {
    return bits >> 4 * j & 0xf;
  }

  /// Adds to what this thread's warp has met.
  WINNOW_DEVICE static void meet(Shared& shared, std::uint32_t highest, std::uint32_t aside) {
    highest = simt::warp_max(highest);
    std::uint32_t other_side = 0;
    if constexpr (kOneSide) other_side = simt::warp_sum(simt::ones_of(aside));
    if (simt::lane() != 0) return;
    Met& met = shared.met[simt::thread() / simt::kLanes];
    if (highest > met.highest) met.highest = highest;
    met.other_side += other_side;
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

  /// Whether all elements of a tile are there, in vectors: the block then moves them without
  /// another look.
  WINNOW_DEVICE bool is_whole(std::uint32_t tile) const {
    return task.count / kSelectTile > tile && is_vector(task.gradient) && is_vector(task.residual);
  }
  /// Bits of this thread's elements of a tile that are there.
  WINNOW_DEVICE std::uint32_t elements_of(std::uint32_t tile) const {
    std::uint32_t here = 0;
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      here |= elements_below(task.count, first_of(tile, j)) << 4 * j;
    }
    return here;
  }

  /// Gradient and residual; of a whole tile all accesses are under way before the first ends.
  WINNOW_DEVICE void load(std::uint32_t tile, bool whole, std::uint32_t here,
                          float (&gradient)[kSelectVectors][4],
                          float (&residual)[kSelectVectors][4]) const {
    if (whole) {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        simt::load4(task.gradient + first_of(tile, j), gradient[j]);
      }
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        simt::load4(task.residual + first_of(tile, j), residual[j]);
      }
      return;
    }
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      load_vector(task.gradient + first_of(tile, j), vector_of(here, j), gradient[j]);
      load_vector(task.residual + first_of(tile, j), vector_of(here, j), residual[j]);
    }
  }

  /// Has caches bring a tile nearer, if it is one of this task and whole.
  WINNOW_DEVICE void prefetch(std::uint32_t tile) const {
    if (!is_whole(tile)) return;
    constexpr std::uint32_t kLine = 128 / sizeof(float), kLines = kSelectTile / kLine;
    for (std::uint32_t line = simt::thread(); line < 2 * kLines; line += simt::kThreads) {
      const float* const from = line < kLines ? task.gradient : task.residual;
      simt::prefetch(from + tile * kSelectTile + line % kLines * kLine);
    }
  }

  /// acc becomes the residual where it is finite, and 0 where it reaches the bound, unless the unit
  /// is own. The gradient of other elements is marked, and becomes zero where acc is finite, if it
  /// is to.
  WINNOW_DEVICE void store(const Shared& shared, std::uint32_t tile, bool whole,
                           std::uint32_t finite, std::uint32_t reaches,
                           const float (&acc)[kSelectVectors][4]) const {
    const auto left_of = [&](std::uint32_t j, float(&left)[4]) {
      const unsigned moved = is_own(shared, j) ? 0 : vector_of(reaches, j);
      for (unsigned e = 0; e < 4; ++e) left[e] = (moved >> e & 1) != 0 ? 0 : acc[j][e];
    };
    if (whole && finite == kAll) {
      constexpr float kZero[4] = {};
      WINNOW_UNROLLED
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        float left[4];
        left_of(j, left);
        simt::store4(task.residual + first_of(tile, j), left);
        if (task.zero_gradient) simt::store4(task.gradient + first_of(tile, j), kZero);
      }
      return;
    }
    const std::uint32_t here = elements_of(tile);
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const std::uint32_t first = first_of(tile, j);
      float left[4];
      left_of(j, left);
      store_vector(task.residual + first, vector_of(finite, j), left);
      leave_gradient(first, vector_of(here, j), vector_of(finite, j));
    }
  }

  /// Replaces the gradients by what the precondition makes of them.
  WINNOW_DEVICE void make_updates(std::uint32_t tile, bool whole, std::uint32_t here,
                                  const float (&residual)[kSelectVectors][4],
                                  float (&gradient)[kSelectVectors][4]) const {
    const Precondition& by = task.precondition;
    const bool has_moment = by.has_moment();
    float moment[kSelectVectors][4] = {};
    if (has_moment && whole && is_vector(by.moment)) {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        simt::load4(by.moment + first_of(tile, j), moment[j]);
      }
    } else if (has_moment) {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        load_vector(by.moment + first_of(tile, j), vector_of(here, j), moment[j]);
      }
    }
    WINNOW_UNROLLED
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      WINNOW_UNROLLED
      for (unsigned e = 0; e < 4; ++e) {
        const Preconditioned made = by.of(gradient[j][e], moment[j][e], residual[j][e],
                                          [](float x) { return simt::root(x); });
        gradient[j][e] = made.update;
        moment[j][e] = made.moment;
      }
      if (has_moment) {
        store_vector(by.moment + first_of(tile, j), vector_of(here, j), moment[j]);
      }
    }
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

  /// Those of an own one, from number `at` on.
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

  WINNOW_DEVICE void leave_gradient(std::uint32_t first, unsigned here, unsigned finite) const {
    const auto mark = std::bit_cast<float>(0x7fc00000U);  // NaN
    float left[4];
    for (unsigned e = 0; e < 4; ++e) left[e] = (finite >> e & 1) != 0 ? 0 : mark;
    store_vector(task.gradient + first, task.zero_gradient ? here : here & ~finite, left);
  }

  /// By one thread, when the pass is over.
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
    control.base[0] = whole ? 0 : simt::published(&control.bound);
    control.rank[0] = task.k;
    const std::uint32_t span = simt::published(&control.highest) - control.base[0];
    while (control.scarce == 0 && span >> control.shift != 0) ++control.shift;
  }
};

/// The pass over all tasks, whose blocks draw the tiles of one task after the other.
template <class Tasks, bool kOwn, bool kMakes, bool kKeeps = false, bool kOneSide = false>
struct StreamPass {
  Tasks tasks;
  bool prefetches;
  using Pass = TaskPass<kOwn, kMakes, kKeeps, kOneSide>;
  static constexpr unsigned kResident = kMakes || (kOwn && kKeeps) ? 3 : 4;  // without spills
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

template <class Tasks>
struct ClearMarks {
  Tasks tasks;

  WINNOW_DEVICE void run() const {
    for (std::uint32_t drawn = simt::block(); drawn < tasks.tiles(); drawn += simt::blocks()) {
      const SelectTask& task = tasks.at(drawn);
      if (!task.zero_gradient || task.control->not_finite == 0) continue;
      const std::uint32_t begin = (drawn - task.first_tile) * kSelectTile;
      for (std::uint32_t i = simt::thread(); i < kSelectTile; i += simt::kThreads) {
        if (begin + i < task.count) task.gradient[begin + i] = 0;
      }
    }
  }
};

/// What the kernels of a launch are for.
struct SelectShape {
  bool has_own, makes_updates, zero_gradient;  ///< of some task
  bool one_side = false;                       ///< likewise; not together with has_own
  bool prefetches = true;                      ///< the next tile of each block

  static SelectShape of(const SelectTask& task) {
    return {.has_own = task.has_own,
            .makes_updates = task.precondition.kind != Precondition::Kind::none,
            .zero_gradient = task.zero_gradient,
            .one_side = task.side != Side::both};
  }
};

/// Calls stage(pass) with the StreamPass for a shape.
template <bool kKeeps, class Tasks, class Stage>
void with_stream_pass(const Tasks& tasks, const SelectShape& shape, const Stage& stage) {
  if (shape.has_own && shape.makes_updates) {
    stage(StreamPass<Tasks, true, true, kKeeps>{tasks, shape.prefetches});
  } else if (shape.has_own) {
    stage(StreamPass<Tasks, true, false, kKeeps>{tasks, shape.prefetches});
  } else if (shape.one_side && shape.makes_updates) {
    stage(StreamPass<Tasks, false, true, false, true>{tasks, shape.prefetches});
  } else if (shape.one_side) {
    stage(StreamPass<Tasks, false, false, false, true>{tasks, shape.prefetches});
  } else if (shape.makes_updates) {
    stage(StreamPass<Tasks, false, true, kKeeps>{tasks, shape.prefetches});
  } else {
    stage(StreamPass<Tasks, false, false, kKeeps>{tasks, shape.prefetches});
  }
}

/// Calls stage(kernel) for each kernel of a step, in order.
template <class Tasks, class Stage>
void for_each_select_kernel(const Tasks& tasks, const SelectShape& shape, const Stage& stage) {
  with_stream_pass<false>(tasks, shape, stage);
  stage(Cut<Tasks>{tasks});
  if (shape.zero_gradient) stage(ClearMarks<Tasks>{tasks});
}

/// Likewise for a selection that keeps all that reaches a bound.
template <class Stage>
void for_each_threshold_kernel(const SelectTask& task, const SelectShape& shape,
                               const Stage& stage) {
  const OneSelect tasks{task};
  with_stream_pass<true>(tasks, shape, stage);
  if (task.zero_gradient) stage(ClearMarks<OneSelect>{tasks});
}

}  // namespace winnow::kernels::cuda
