// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

/// Further above any magnitude than digits reach.
inline constexpr std::uint32_t kNoSample = ~0U;

/// The magnitude of what would be element i of acc; kNoSample where it does not compete.
WINNOW_DEVICE std::uint32_t sampled_magnitude(const SelectTask& task, std::uint32_t i) {
  const float update = task.precondition
                           .of(task.gradient.at(i), task.precondition.moment_of(i),
                               task.residual[i], [](float x) { return simt::root(x); })
                           .update;
  const float acc = feedback(update, task.decay, task.residual[i]);
  const std::uint32_t size = magnitude(acc);
  return size < kInfinity && SideKey(task.side).has(acc) ? size : kNoSample;
}

/// The blocks that come take a sample of acc, each some shares of it, drawn in turn, so nobody
/// waits for a block that is not there. Reads gradient, residual and moment. Returns true for the
/// block that ends the last share and then sees the whole sample; the others may have to wait for
/// it.
WINNOW_DEVICE bool take_sample(TileTicket& turn, const SelectTask& task) {
  SelectControl& control = *task.control;
  const std::uint32_t sampled = task.sample_runs * kSampleRun;
  const std::uint32_t shares = (sampled + simt::kThreads - 1) / simt::kThreads;
  simt::barrier();  // the block may just have drawn a tile
  while (true) {
    const std::uint32_t share = next_tile(turn, &control.sample_ticket);
    if (share >= shares) return false;
    const std::uint32_t s = share * simt::kThreads + simt::thread();
    if (s < sampled) {
      const std::uint32_t i = s / kSampleRun * (task.count / task.sample_runs) + s % kSampleRun;
      task.sample()[s] = sampled_magnitude(task, i);
    }
    if (is_last_block(turn, &control.sample_done, 1, shares)) return true;
  }
}

/// All threads of a block find, in the sample, a magnitude that about k elements reach, by digits
/// as Cut does; 0 where the sample is too small for its rank.
WINNOW_DEVICE std::uint32_t sampled_bound(DigitRoom& room, const SelectTask& task) {
  constexpr std::uint32_t kTogether = 8;  // numbers of a thread that are on their way at a time
  const std::uint32_t sampled = task.sample_runs * kSampleRun;
  std::uint32_t base = 0, rank = task.sample_rank;
  for (std::uint32_t shift = 31; shift > 0;) {
    const std::uint32_t width = 1U << shift;
    shift -= digit_bits(shift);
    clear_bins(room);
    simt::barrier();
    for (std::uint32_t s = simt::thread(); s < sampled; s += kTogether * simt::kThreads) {
      std::uint32_t size[kTogether];
      WINNOW_UNROLLED
      for (std::uint32_t j = 0; j < kTogether; ++j) {
        const std::uint32_t at = s + j * simt::kThreads;
        size[j] = at < sampled ? task.sample()[at] : kNoSample;
      }
      WINNOW_UNROLLED
      for (std::uint32_t j = 0; j < kTogether; ++j) {
        if (size[j] - base < width) simt::atomic_add(&room.bins[(size[j] - base) >> shift], 1);
      }
    }
    simt::barrier();
    const Digit digit = find_digit(room, rank);
    if (!digit.found) return 0;
    base += digit.digit << shift;
    rank -= digit.above;
  }
  return base;
}

}  // namespace winnow::kernels::cuda
