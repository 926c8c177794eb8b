// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cub/device/device_radix_sort.cuh>

#include "bench/gpu/cuda_rivals.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vectors.cuh"

namespace winnow::bench {

namespace {

constexpr int kKeyBits = 31;

struct MakeKeys {
  const float* x;
  std::uint64_t count;
  std::uint32_t *keys, *positions;

  WINNOW_DEVICE void run() const {
    for (std::uint64_t i = simt::grid_thread(); i < count; i += simt::grid_threads()) {
      keys[i] = kernels::cuda::magnitude(x[i]);
      positions[i] = static_cast<std::uint32_t>(i);
    }
  }
};

void sort(void* scratch, std::size_t& bytes, const SortJob& job, cudaStream_t stream) {
  WINNOW_CUDA_TRY(cub::DeviceRadixSort::SortPairsDescending(
      scratch, bytes, job.keys.data(), job.sorted_keys.data(), job.positions.data(),
      job.sorted_positions.data(), static_cast<std::int64_t>(job.x.size()), 0, kKeyBits, stream));
}

}  // namespace

std::size_t sort_scratch(std::size_t count) {
  std::size_t bytes = 0;
  sort(nullptr, bytes, {.x = {static_cast<const float*>(nullptr), count}}, nullptr);
  return bytes;
}

void sort_by_magnitude(const SortJob& job, cudaStream_t stream) {
  const Exec exec{.place = Place::cuda, .stream = stream};
  kernels::cuda::launch<MakeKeys>(
      exec, kernels::cuda::blocks_of(job.x.size()),
      {job.x.data(), job.x.size(), job.keys.data(), job.positions.data()});
  std::size_t bytes = job.scratch.size();
  sort(job.scratch.data(), bytes, job, stream);
}

}  // namespace winnow::bench
