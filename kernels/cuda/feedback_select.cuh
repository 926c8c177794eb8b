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
  struct Shared {
    simt::ScanRoom scan, own_scan;
    Turn turn;
    std::uint32_t own[kTileUnits / simt::kLanes];  // a bit for each unit of the tile
    DigitRoom digits;
  };

  /// The place of a candidate: in scratch, or in a list of several parameters.
  using Place = std::conditional_t<kKeeps, std::uint64_t, std::uint32_t>;

  /// The bounds that elements must reach: a magnitude, and |acc| of own ones. And where candidates
  /// begin.
  struct Bounds {
    std::uint32_t competing;
    float own;
    Place begin;
  };

  /// A thread's findings.
  struct Met {
    std::uint32_t highest, not_finite, own_not_finite, other_side;
  };

  /// Begins with a tile of the task that the block has drawn among those of all tasks, and goes on
  /// until it draws another task's, which it returns.
  WINNOW_DEVICE std::uint32_t run(Shared& shared, std::uint32_t drawn,
                                  std::uint32_t* tickets) const {
    SelectControl* const control = task.control;
    const std::uint32_t tiles = pass_tiles(task.count);
    Bounds bounds{kKeeps ? task.bound : kUnknown, kOwn ? task.own.bound_of_step() : 0,
                  kKeeps ? *task.kept : 0};
    Met met{0, 0, 0, 0};
    std::uint32_t mine = 0;
    for (std::uint32_t tile = drawn - task.first_tile; tile < tiles;
         tile = drawn - task.first_tile) {
      if constexpr (!kKeeps) {
        if (bounds.competing == kUnknown) bounds.competing = find_bound(shared, tile == 0);
      }
      stream(shared, tile, bounds, met);
      ++mine;
      drawn = next_tile(shared.turn, tickets);
    }
    met.highest = simt::warp_max(met.highest);
    met.not_finite = simt::warp_sum(met.not_finite);
    if constexpr (kOwn) met.own_not_finite = simt::warp_sum(met.own_not_finite);
    if constexpr (kOneSide) met.other_side = simt::warp_sum(met.other_side);
    if (simt::lane() == 0) {
      simt::atomic_max(&control->highest, met.highest);
      if (met.not_finite > 0) simt::atomic_add(&control->not_finite, met.not_finite);
      if (met.own_not_finite > 0) simt::atomic_add(&control->own_not_finite, met.own_not_finite);
      if (met.other_side > 0) simt::atomic_add(&control->other_side, met.other_side);
    }
    if (is_last_thread(&control->stream_done, mine, tiles)) {
      if constexpr (kKeeps) {
        report_kept(task, simt::published(&control->candidates));
      } else {
        decide();
      }
    }
    return drawn;
  }

 private:
  static constexpr std::uint32_t kUnknown = ~0U;  // as a bound

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

  /// Says of each unit of the tile whether it is own.
  WINNOW_DEVICE void find_own(Shared& shared, std::uint32_t tile) const {
    if (simt::thread() < kTileUnits) {
      const auto first = static_cast<std::uint32_t>(simt::thread() * Partition::kUnit);
      const std::uint32_t own = simt::ballot(task.own.has(tile * kSelectTile + first));
      if (simt::lane() == 0) shared.own[simt::thread() / simt::kLanes] = own;
    }
    simt::barrier();
  }

  /// Whether this thread's vector j lies in an own unit.
  WINNOW_DEVICE static bool is_own(const Shared& shared, std::uint32_t j) {
    const std::uint32_t unit = first_of(0, j) / static_cast<std::uint32_t>(Partition::kUnit);
    return kOwn && (shared.own[unit / simt::kLanes] >> unit % simt::kLanes & 1) != 0;
  }

  WINNOW_DEVICE void stream(Shared& shared, std::uint32_t tile, const Bounds& bounds,
                            Met& met) const {
    float acc[kSelectVectors][4];
    unsigned here[kSelectVectors], finite[kSelectVectors], reaches[kSelectVectors];
    std::uint64_t counts = 0, own_counts = 0;  // of what reaches a bound, 16 bits a vector
    if constexpr (kOwn) find_own(shared, tile);
    WINNOW_UNROLLED
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const bool own = is_own(shared, j);
      const std::uint32_t first = first_of(tile, j);
      float gradient[4], residual[4];
      here[j] = elements_below(task.count, first);
      load_vector(task.gradient + first, here[j], gradient);
      load_vector(task.residual + first, here[j], residual);
      if constexpr (kMakes) make_updates(first, here[j], residual, gradient);
      finite[j] = reaches[j] = 0;
      for (unsigned e = 0; e < 4; ++e) {
        acc[j][e] = feedback(gradient[e], task.decay, residual[e]);
        const std::uint32_t size = magnitude(acc[j][e]);
        if ((here[j] >> e & 1) == 0) continue;
        if (size >= kInfinity) {
          ++met.not_finite;
          met.own_not_finite += own ? 1 : 0;
          continue;
        }
        finite[j] |= 1U << e;
        if (own) {
          if (std::bit_cast<float>(size) < bounds.own) continue;
          own_counts += std::uint64_t{1} << 16 * j;
        } else if (kOneSide && !SideKey(task.side).has(acc[j][e])) {
          ++met.other_side;
          continue;
        } else {
          met.highest = size > met.highest ? size : met.highest;
          if (size < bounds.competing) continue;
          counts += std::uint64_t{1} << 16 * j;
        }
        reaches[j] |= 1U << e;
      }
    }
    const simt::Scanned scanned = simt::scan(shared.scan, counts);
    simt::Scanned own_scanned{0, 0};
    if constexpr (kOwn) own_scanned = simt::scan(shared.own_scan, own_counts);
    std::uint32_t total = 0, own_total = 0;
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      total += field(scanned.total, j);
      own_total += field(own_scanned.total, j);
    }
    const std::uint64_t before =
        look_back(shared.turn, task.stream_tiles, tile, pair_of(total, own_total));
    std::uint32_t at = low_of(before), own_at = high_of(before);
    if (tile + 1 == select_tiles(task.count) && simt::thread() == 0) {
      task.control->candidates = at + total;
      task.control->listed = own_at + own_total;
    }
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const std::uint32_t first = first_of(tile, j);
      if (is_own(shared, j)) {
        list_own(first, reaches[j], acc[j], own_at + field(own_scanned.before, j));
      } else {
        move_candidates(first, reaches[j], acc[j], bounds.begin + at + field(scanned.before, j));
      }
      at += field(scanned.total, j);
      own_at += field(own_scanned.total, j);
      store_vector(task.residual + first, finite[j], acc[j]);
      leave_gradient(first, here[j], finite[j]);
    }
  }

  /// Replaces the gradients of a vector by what the precondition makes of them.
  WINNOW_DEVICE void make_updates(std::uint32_t first, unsigned here, const float (&residual)[4],
                                  float (&gradient)[4]) const {
    const Precondition& by = task.precondition;
    float moment[4] = {};
    if (by.has_moment()) load_vector(by.moment + first, here, moment);
    WINNOW_UNROLLED
    for (unsigned e = 0; e < 4; ++e) {
      const Preconditioned made =
          by.of(gradient[e], moment[e], residual[e], [](float x) { return simt::root(x); });
      gradient[e] = made.update;
      moment[e] = made.moment;
    }
    if (by.has_moment()) store_vector(by.moment + first, here, moment);
  }

  /// The elements of a vector that reach the bound, as candidates from number `at` on.
  WINNOW_DEVICE void move_candidates(std::uint32_t first, unsigned reaches, float (&acc)[4],
                                     Place at) const {
    for (unsigned e = 0; e < 4; ++e) {
      if ((reaches >> e & 1) == 0) continue;
      if (at < task.capacity) {
        task.candidate_index[at] = (kKeeps ? task.base : 0) + first + e;
        task.candidate_value[at] = acc[e];
        acc[e] = 0;
      }
      ++at;
    }
  }

  WINNOW_DEVICE void list_own(std::uint32_t first, unsigned reaches, const float (&acc)[4],
                              std::uint32_t at) const {
    if (reaches == 0) return;
    const auto local = static_cast<std::uint32_t>(task.own.partition.local(task.own.base + first));
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
  using Pass = TaskPass<kOwn, kMakes, kKeeps, kOneSide>;
  static constexpr unsigned kResident = kOneSide ? 3 : Tasks::kResident;
  struct Shared {
    typename Pass::Shared pass;
    typename Tasks::Room room;
  };

  WINNOW_DEVICE void run(Shared& shared) const {
    std::uint32_t drawn = next_tile(shared.pass.turn, tasks.tickets());
    while (drawn < tasks.tiles()) {
      const SelectTask& task = tasks.fetch(shared.room, drawn);
      drawn = Pass{task}.run(shared.pass, drawn, tasks.tickets());
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
    stage(StreamPass<Tasks, true, true, kKeeps>{tasks});
  } else if (shape.has_own) {
    stage(StreamPass<Tasks, true, false, kKeeps>{tasks});
  } else if (shape.one_side && shape.makes_updates) {
    stage(StreamPass<Tasks, false, true, false, true>{tasks});
  } else if (shape.one_side) {
    stage(StreamPass<Tasks, false, false, false, true>{tasks});
  } else if (shape.makes_updates) {
    stage(StreamPass<Tasks, false, true, kKeeps>{tasks});
  } else {
    stage(StreamPass<Tasks, false, false, kKeeps>{tasks});
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
void for_each_threshold_kernel(const SelectTask& task, const Stage& stage) {
  const OneSelect tasks{task};
  with_stream_pass<true>(tasks, SelectShape::of(task), stage);
  if (task.zero_gradient) stage(ClearMarks<OneSelect>{tasks});
}

}  // namespace winnow::kernels::cuda
