// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <winnow/exec.hpp>

#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/try.hpp"

#ifndef __CUDACC__
namespace winnow::simt {
/// Enqueues a grid whose threads all call `kernel` with the shared memory of their block; on the
/// host model, whose body is in tests/model/cuda_model.cpp.
cudaError_t launch(cudaStream_t stream, unsigned blocks, std::size_t shared_bytes,
                   std::function<void(void*)> kernel);
}  // namespace winnow::simt
#endif

namespace winnow::kernels::cuda {

/// The stream of an Exec that may be used on a device.
inline cudaStream_t stream_of(const Exec& exec) {
  expect_device(exec);
  return static_cast<cudaStream_t>(exec.stream);
}

WINNOW_DEVICE bool holds(const Condition& condition) {
  if (condition.words == nullptr) return true;
  std::uint32_t any = 0;
  for (std::uint32_t i = 0; i < condition.count; ++i) any |= condition.words[i];
  return (any != 0) == condition.any;
}

#ifdef __CUDACC__

/// Blocks that a multiprocessor runs at a time for certain, where a kernel says it: so few that the
/// compiler need not spill registers to make room for more. 0: as the compiler thinks best.
template <class Kernel>
constexpr unsigned resident_blocks() {
  if constexpr (requires { Kernel::kResident; }) {
    return Kernel::kResident;
  } else {
    return 0;
  }
}

/// Every thread of a grid enters a kernel (simt.hpp) here.
template <class Kernel>
__global__ void __launch_bounds__(simt::kThreads, resident_blocks<Kernel>())
    enter(const __grid_constant__ Kernel kernel, const Condition condition) {
  __shared__ simt::SharedOf<Kernel> shared;
  if (holds(condition)) simt::run(kernel, shared);
}

/// A kernel that is launched somewhere, in the list of all of them, which is made before main().
struct KnownKernel {
  static inline const KnownKernel* first = nullptr;

  const void* kernel;
  const KnownKernel* next;

  explicit KnownKernel(const void* entered) : kernel(entered), next(first) { first = this; }
};

template <class Kernel>
struct Known {
  static inline const KnownKernel kernel{reinterpret_cast<const void*>(&enter<Kernel>)};
};

/// Enqueues a kernel on exec.stream.
template <class Kernel>
void launch(const Exec& exec, unsigned blocks, const Kernel& kernel) {
  static_cast<void>(&Known<Kernel>::kernel);
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = simt::kThreads;
  config.stream = stream_of(exec);
  WINNOW_CUDA_TRY(cudaLaunchKernelEx(&config, enter<Kernel>, kernel, exec.condition));
}

#else

template <class Kernel>
void launch(const Exec& exec, unsigned blocks, const Kernel& kernel) {
  using Shared = simt::SharedOf<Kernel>;
  const auto enter = [kernel, condition = exec.condition](void* shared) {
    if (holds(condition)) simt::run(kernel, *static_cast<Shared*>(shared));
  };
  WINNOW_CUDA_TRY(simt::launch(stream_of(exec), blocks, sizeof(Shared), enter));
}

#endif

/// Enqueues zeros in scratch, whatever exec.condition says.
template <class T>
void clear(const Exec& exec, T* at, std::size_t count = 1) {
  WINNOW_CUDA_TRY(cudaMemsetAsync(at, 0, count * sizeof(T), stream_of(exec)));
}

/// The runtime's properties of the current device.
inline int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  WINNOW_CUDA_TRY(cudaGetDevice(&device));
  WINNOW_CUDA_TRY(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

/// Blocks for a kernel whose blocks fetch `tiles` pieces of work until none is left: as many as
/// the current device runs at a time, or `waves` times as many.
inline unsigned blocks_for(std::uint64_t tiles, unsigned waves = 1) {
  constexpr std::uint64_t kBlocksPerMultiprocessor = 8;
  const auto multiprocessors =
      static_cast<unsigned>(attribute_of_device(cudaDevAttrMultiProcessorCount));
  const std::uint64_t most = multiprocessors * kBlocksPerMultiprocessor * waves;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(tiles, 1, most));
}

/// Blocks for a kernel in which each thread takes every grid_threads()-th piece of work.
inline unsigned blocks_of(std::uint64_t pieces, unsigned waves = 1) {
  return blocks_for((pieces + simt::kThreads - 1) / simt::kThreads, waves);
}

}  // namespace winnow::kernels::cuda
