// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <winnow/exec.hpp>

#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/try.hpp"

namespace winnow::kernels::cuda {

/// Every thread of a grid enters a kernel (simt.hpp) here.
template <class Kernel>
__global__ void __launch_bounds__(simt::kThreads)
    enter(const __grid_constant__ typename Kernel::Task task) {
  __shared__ typename Kernel::Shared shared;
  Kernel::run(shared, task);
}

/// Of an Exec that may be used on a device.
inline cudaStream_t stream_of(const Exec& exec) {
  expect_device(exec);
  return static_cast<cudaStream_t>(exec.stream);
}

/// Enqueues a kernel on exec.stream.
template <class Kernel>
void launch(const Exec& exec, unsigned blocks, const typename Kernel::Task& task) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = simt::kThreads;
  config.stream = stream_of(exec);
  WINNOW_CUDA_TRY(cudaLaunchKernelEx(&config, enter<Kernel>, task));
}

/// Enqueues zeros.
template <class T>
void clear(const Exec& exec, T* at, std::size_t count = 1) {
  WINNOW_CUDA_TRY(cudaMemsetAsync(at, 0, count * sizeof(T), stream_of(exec)));
}

/// Blocks for a kernel whose blocks fetch `tiles` pieces of work until none is left: as many as
/// the current device runs at a time.
inline unsigned blocks_for(std::uint64_t tiles) {
  constexpr std::uint64_t kBlocksPerMultiprocessor = 8;
  int device = 0, multiprocessors = 0;
  WINNOW_CUDA_TRY(cudaGetDevice(&device));
  WINNOW_CUDA_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  const std::uint64_t most = static_cast<unsigned>(multiprocessors) * kBlocksPerMultiprocessor;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(tiles, 1, most));
}

/// Blocks for a kernel in which each thread takes every grid_threads()-th piece of work.
inline unsigned blocks_of(std::uint64_t pieces) {
  return blocks_for((pieces + simt::kThreads - 1) / simt::kThreads);
}

}  // namespace winnow::kernels::cuda
