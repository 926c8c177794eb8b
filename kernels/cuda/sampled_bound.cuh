// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

/// All threads of a block find a magnitude that about k elements reach, by digits as Cut does; 0
/// where the sample is too small for its rank. Reads gradient, residual and moment.
WINNOW_DEVICE std::uint32_t sampled_bound(DigitRoom& room, const SelectTask& task) {
  std::uint32_t base = 0, rank = task.sample_rank;
  for (std::uint32_t shift = 31; shift > 0;) {
    const std::uint32_t width = 1U << shift;
    shift -= digit_bits(shift);
    clear_bins(room);
    simt::barrier();
    for (std::uint32_t s = simt::thread(); s < task.sample_runs * kSampleRun; s += simt::kThreads) {
      const std::uint32_t i = s / kSampleRun * (task.count / task.sample_runs) + s % kSampleRun;
      const float update = task.precondition
                               .of(task.gradient.at(i), task.precondition.moment_of(i),
                                   task.residual[i], [](float x) { return simt::root(x); })
                               .update;
      const float acc = feedback(update, task.decay, task.residual[i]);
      const std::uint32_t size = magnitude(acc);
      if (size < kInfinity && size - base < width && SideKey(task.side).has(acc)) {
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

}  // namespace winnow::kernels::cuda
