// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/arithmetic.hpp"
#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/select_cut.cuh"
#include "kernels/cuda/select_source.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

// Exact selection in one pass over memory, without the host.
//
// 1. ChooseBound: under it nothing is expected to be among the k largest. The one carried from the
//    last step, or, on a parameter's first, one from a sample.
// 2. StreamPass: acc goes into the residual; where |acc| reaches the bound it moves on into the
//    candidates, in index order, leaving 0. Candidates beyond their room stay where they are. Where
//    acc is not finite the residual stays, and the gradient is marked by NaN: where acc is finite,
//    the gradient is. Own units stay in the residual, and what reaches their bound is listed.
// 3. PutBack: fewer than k candidates, or more than there is room for, do not serve. They go back
//    into the residual, and from there on the whole residual stands for the candidates.
// 4. CountDigits, a digit each time: the magnitude of the k-th, and how many that equal it are
// kept.
// 5. Compact: those kept, in index order, to the message; other candidates back to the residual.
// 6. ClearMarks, where something is not finite and the gradient is to be zero.
//
// What has nothing to do returns at once, so a step is the same launches whatever the numbers are.
// Fewer than k finite elements: all of them are kept, and the lowest positions of others, as 0.

namespace winnow::kernels::cuda {

/// Finds a magnitude that about k elements reach, by digits as CountDigits does; 0 where the sample
/// is too small for its rank.
struct ChooseBound {
  using Task = SelectTask;
  using Shared = DigitRoom;

  WINNOW_DEVICE static void run(Shared& room, const Task& task) {
    if (simt::block() != 0) return;
    const SelectBound state = *task.state;
    std::uint32_t bound = kInfinity;  // nothing reaches it
    if (task.k > 0) {
      bound = state.k == task.k ? magnitude(state.bound) : sampled_bound(room, task);
    }
    if (simt::thread() == 0) task.control->bound = bound;
  }

 private:
  WINNOW_DEVICE static std::uint32_t sampled_bound(Shared& room, const Task& task) {
    if (task.sample_runs == 0) return 0;
    std::uint32_t base = 0, rank = task.sample_rank;
    for (std::uint32_t shift = 31; shift > 0;) {
      const std::uint32_t width = 1U << shift;
      shift -= digit_bits(shift);
      clear_bins(room);
      simt::barrier();
      for (std::uint32_t s = simt::thread(); s < task.sample_runs * kSampleRun;
           s += simt::kThreads) {
        const std::uint32_t i = s / kSampleRun * (task.count / task.sample_runs) + s % kSampleRun;
        const std::uint32_t size =
            magnitude(feedback(task.gradient[i], task.decay, task.residual[i]));
        if (size < kInfinity && size - base < width) {
          simt::atomic_add(&room.bins[(size - base) >> shift], 1);
        }
      }
      simt::barrier();
      const Digit digit = pick_digit(room, rank);
      if (!digit.found) return 0;
      base += digit.digit << shift;
      rank -= digit.above;
    }
    return base;
  }
};

/// `kOwn`: there are own units.
template <bool kOwn>
struct StreamPass {
  using Task = SelectTask;
  struct Shared {
    simt::ScanRoom scan, own_scan;
    Turn turn;
    std::uint32_t own[kTileUnits / simt::kLanes];  // a bit for each unit of the tile
  };

  /// What elements must reach: a magnitude, and |acc| of own ones.
  struct Bounds {
    std::uint32_t competing;
    float own;
  };

  /// What a thread has met.
  struct Met {
    std::uint32_t highest, not_finite, own_not_finite;
  };

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    SelectControl* const control = task.control;
    const std::uint32_t tiles = select_tiles(task.count);
    const Bounds bounds{control->bound, kOwn ? task.own.bound_of_step() : 0};
    Met met{0, 0, 0};
    while (true) {
      const std::uint32_t tile = next_tile(shared.turn, &control->stream_ticket);
      if (tile >= tiles) break;
      stream(shared, task, tile, bounds, met);
    }
    met.highest = simt::warp_max(met.highest);
    met.not_finite = simt::warp_sum(met.not_finite);
    if constexpr (kOwn) met.own_not_finite = simt::warp_sum(met.own_not_finite);
    if (simt::lane() == 0) {
      simt::atomic_max(&control->highest, met.highest);
      if (met.not_finite > 0) simt::atomic_add(&control->not_finite, met.not_finite);
      if (met.own_not_finite > 0) simt::atomic_add(&control->own_not_finite, met.own_not_finite);
    }
    if (is_last_thread(&control->stream_done)) decide(task);
  }

 private:
  /// Says of each unit of the tile whether it is own.
  WINNOW_DEVICE static void find_own(Shared& shared, const Task& task, std::uint32_t tile) {
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

  WINNOW_DEVICE static void stream(Shared& shared, const Task& task, std::uint32_t tile,
                                   const Bounds& bounds, Met& met) {
    float acc[kSelectVectors][4];
    unsigned here[kSelectVectors], finite[kSelectVectors], reaches[kSelectVectors];
    std::uint64_t counts = 0, own_counts = 0;  // of what reaches a bound, 16 bits a vector
    if constexpr (kOwn) find_own(shared, task, tile);
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const bool own = is_own(shared, j);
      const std::uint32_t first = first_of(tile, j);
      float gradient[4], residual[4];
      here[j] = elements_below(task.count, first);
      load_vector(task.gradient + first, here[j], gradient);
      load_vector(task.residual + first, here[j], residual);
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
        list_own(task, first, reaches[j], acc[j], own_at + field(own_scanned.before, j));
      } else {
        move_candidates(task, first, reaches[j], acc[j], at + field(scanned.before, j));
      }
      at += field(scanned.total, j);
      own_at += field(own_scanned.total, j);
      store_vector(task.residual + first, finite[j], acc[j]);
      leave_gradient(task, first, here[j], finite[j]);
    }
  }

  /// Those elements of a vector that reach the bound, as candidates from number `at` on.
  WINNOW_DEVICE static void move_candidates(const Task& task, std::uint32_t first, unsigned reaches,
                                            float (&acc)[4], std::uint32_t at) {
    for (unsigned e = 0; e < 4; ++e) {
      if ((reaches >> e & 1) == 0) continue;
      if (at < task.capacity) {
        task.candidate_index[at] = first + e;
        task.candidate_value[at] = acc[e];
        acc[e] = 0;
      }
      ++at;
    }
  }

  WINNOW_DEVICE static void list_own(const Task& task, std::uint32_t first, unsigned reaches,
                                     const float (&acc)[4], std::uint32_t at) {
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

  WINNOW_DEVICE static void leave_gradient(const Task& task, std::uint32_t first, unsigned here,
                                           unsigned finite) {
    const auto mark = std::bit_cast<float>(0x7fc00000U);  // NaN
    float left[4];
    for (unsigned e = 0; e < 4; ++e) left[e] = (finite >> e & 1) != 0 ? 0 : mark;
    store_vector(task.gradient + first, task.zero_gradient ? here : here & ~finite, left);
  }

  /// By one thread, when the pass is over.
  WINNOW_DEVICE static void decide(const Task& task) {
    SelectControl& control = *task.control;
    if (task.k == 0) return;
    const std::uint32_t candidates = simt::published(&control.candidates);
    const std::uint32_t not_finite =
        simt::published(&control.not_finite) - simt::published(&control.own_not_finite);
    const bool whole = candidates < task.k || candidates > task.capacity;
    control.whole = whole ? 1 : 0;
    control.finite = task.competing - not_finite;
    control.scarce = control.finite < task.k ? 1 : 0;
    control.base = whole ? 0 : control.bound;
    control.rank = task.k;
    const std::uint32_t span = simt::published(&control.highest) - control.base;
    while (control.scarce == 0 && span >> control.shift != 0) ++control.shift;
  }
};

struct PutBack {
  using Task = SelectTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    const SelectControl& control = *task.control;
    if (control.whole == 0) return;
    const std::uint32_t held =
        control.candidates < task.capacity ? control.candidates : task.capacity;
    for (std::uint32_t c = simt::block() * simt::kThreads + simt::thread(); c < held;
         c += simt::blocks() * simt::kThreads) {
      task.residual[task.candidate_index[c]] = task.candidate_value[c];
    }
  }
};

struct ClearMarks {
  using Task = SelectTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    if (task.control->not_finite == 0) return;
    for (std::uint32_t i = simt::block() * simt::kThreads + simt::thread(); i < task.count;
         i += simt::blocks() * simt::kThreads) {
      task.gradient[i] = 0;
    }
  }
};

/// Calls stage(kernel, blocks) for each kernel of a step, in order.
template <class Stage>
void for_each_select_kernel(const SelectTask& task, unsigned blocks, const Stage& stage) {
  stage(ChooseBound{}, 1U);
  if (task.has_own) {
    stage(StreamPass<true>{}, blocks);
  } else {
    stage(StreamPass<false>{}, blocks);
  }
  stage(PutBack{}, blocks);
  stage(CountDigits<0>{}, blocks);
  stage(CountDigits<1>{}, blocks);
  stage(CountDigits<2>{}, blocks);
  stage(Compact{}, blocks);
  if (task.zero_gradient) stage(ClearMarks{}, blocks);
}

}  // namespace winnow::kernels::cuda
