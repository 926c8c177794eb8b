// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt_kernel.hpp"
#ifdef __CUDACC__
#include "kernels/cuda/simt_device.cuh"
#else
#include "kernels/cuda/simt_model.hpp"
#endif

// The machine that kernels (simt_kernel.hpp) in this folder need: blocks of kThreads threads in
// warps of kLanes. Kernels are written against these functions alone, so one source serves two
// machines: nvcc makes device code of it (simt_device.cuh, which says what each function does), and
// g++ a host program in which each thread is a fiber (simt_model.hpp, tests/model/machine.hpp),
// where the logic of a kernel is tested without a GPU.
//
// All threads of a warp, or of a block, must make its collective calls, in the same order.

namespace winnow::simt {

/// This thread's number in the grid, and how many threads the grid has: a thread of a kernel in
/// which each does its own work takes every grid_threads()-th piece of it.
WINNOW_DEVICE std::uint64_t grid_thread() {
  return std::uint64_t{block()} * kThreads + thread();
}
WINNOW_DEVICE std::uint64_t grid_threads() {
  return std::uint64_t{blocks()} * kThreads;
}

/// The number of this thread within its warp.
WINNOW_DEVICE unsigned lane() {
  return thread() % kLanes;
}

/// The largest value of the threads of a warp.
WINNOW_DEVICE std::uint32_t warp_max(std::uint32_t mine) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0U, mine);
#else
  return warp_reduce(mine, [](std::uint32_t a, std::uint32_t b) { return b > a ? b : a; });
#endif
}

/// The maximum in this thread's half of a warp, 16 lanes.
WINNOW_DEVICE std::uint32_t half_warp_max(std::uint32_t mine) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffU << (lane() & kLanes / 2), mine);
#else
  for (unsigned step = kLanes / 4; step > 0; step /= 2) {
    const std::uint32_t other = shuffle_xor(mine, step);
    mine = other > mine ? other : mine;
  }
  return mine;
#endif
}

/// The sum over the lanes up to this one.
WINNOW_DEVICE std::uint32_t warp_sum_to(std::uint32_t mine) {
  for (unsigned step = 1; step < kLanes; step *= 2) {
    const std::uint32_t other = shuffle(mine, (lane() - step) % kLanes);
    if (lane() >= step) mine += other;
  }
  return mine;
}

/// The sum of the values of the threads of a warp.
template <class T>
WINNOW_DEVICE T warp_sum(T mine) {
  return warp_reduce(mine, [](T a, T b) { return a + b; });
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
WINNOW_DEVICE std::uint32_t warp_sum(std::uint32_t mine) {
  return __reduce_add_sync(~0U, mine);
}
#endif

}  // namespace winnow::simt
