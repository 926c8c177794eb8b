// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/arithmetic.hpp"
#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/residual_add.hpp"
#include "kernels/cuda/try.hpp"

namespace winnow::kernels::cuda {

// A span is head + body + tail: the body is the stretch of whole, aligned float4s, head and tail
// are the at most 3 floats before and after it. Threads stride over the body by the whole grid;
// each float of head and tail has a thread of its own. Spans that lie differently modulo 16 bytes
// have no common body: they are walked a float at a time, which is as coalesced but takes more
// instructions.
namespace {

constexpr unsigned kBlock = 256;
/// Several waves of blocks, so that multiprocessors which finish early have more to fetch.
constexpr unsigned kBlocksPerMultiprocessor = 32;
constexpr std::size_t kLanes = sizeof(float4) / sizeof(float);

__device__ std::size_t thread_index() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__device__ std::size_t thread_count() {
  return std::size_t{gridDim.x} * blockDim.x;
}

__global__ void __launch_bounds__(kBlock)
    add_vectors(float* __restrict__ residual, const float* __restrict__ gradient, std::size_t head,
                std::size_t count) {
  const std::size_t me = thread_index();
  const std::size_t vectors = (count - head) / kLanes;
  const std::size_t tail = head + vectors * kLanes;
  auto* residual4 = reinterpret_cast<float4*>(residual + head);
  const auto* gradient4 = reinterpret_cast<const float4*>(gradient + head);
  for (std::size_t i = me; i < vectors; i += thread_count()) {
    const float4 r = residual4[i], g = gradient4[i];
    residual4[i] = {add_gradient(r.x, g.x), add_gradient(r.y, g.y), add_gradient(r.z, g.z),
                    add_gradient(r.w, g.w)};
  }
  if (me < head) residual[me] = add_gradient(residual[me], gradient[me]);
  if (me < count - tail) {
    residual[tail + me] = add_gradient(residual[tail + me], gradient[tail + me]);
  }
}

__global__ void __launch_bounds__(kBlock)
    add_floats(float* __restrict__ residual, const float* __restrict__ gradient,
               std::size_t count) {
  for (std::size_t i = thread_index(); i < count; i += thread_count()) {
    residual[i] = add_gradient(residual[i], gradient[i]);
  }
}

/// Floats from `pointer` to the next multiple of 16 bytes.
std::size_t floats_to_alignment(const float* pointer) {
  const auto past = reinterpret_cast<std::uintptr_t>(pointer) % sizeof(float4) / sizeof(float);
  return past == 0 ? 0 : kLanes - past;
}

/// A grid whose threads have one item each, but no larger than the device can make use of.
cudaLaunchConfig_t grid_over(std::size_t items, const Exec& exec) {
  expect_device(exec);
  int device = 0, multiprocessors = 0;
  WINNOW_CUDA_TRY(cudaGetDevice(&device));
  WINNOW_CUDA_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  const std::size_t most = static_cast<unsigned>(multiprocessors) * kBlocksPerMultiprocessor;
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(std::min((items + kBlock - 1) / kBlock, most));
  config.blockDim = kBlock;
  config.stream = static_cast<cudaStream_t>(exec.stream);
  return config;
}

}  // namespace

void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient) {
  const std::size_t count = residual.size();
  if (count == 0) return;
  const std::size_t head = std::min(floats_to_alignment(residual.data()), count);
  if (head == std::min(floats_to_alignment(gradient.data()), count)) {
    const auto grid = grid_over(std::max(count / kLanes, kLanes), exec);
    WINNOW_CUDA_TRY(
        cudaLaunchKernelEx(&grid, add_vectors, residual.data(), gradient.data(), head, count));
  } else {
    const auto grid = grid_over(count, exec);
    WINNOW_CUDA_TRY(cudaLaunchKernelEx(&grid, add_floats, residual.data(), gradient.data(), count));
  }
}

}  // namespace winnow::kernels::cuda
