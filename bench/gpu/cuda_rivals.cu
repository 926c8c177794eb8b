// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <thrust/copy.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>

#include <cub/device/device_radix_sort.cuh>
#include <new>

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

struct IsAbove {
  float bound;

  __device__ bool operator()(float x) const { return fabsf(x) >= bound; }
};

/// Gives Thrust memory that was allocated before.
class Lender {
 public:
  using value_type = char;

  explicit Lender(std::span<std::byte> memory) : rest_(memory) {}
  char* allocate(std::ptrdiff_t bytes) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t size =
        (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
    if (size > rest_.size()) throw std::bad_alloc();
    char* const memory = reinterpret_cast<char*>(rest_.data());
    rest_ = rest_.subspan(size);
    return memory;
  }
  void deallocate(char*, std::size_t) {}

 private:
  std::span<std::byte> rest_;
};

}  // namespace

std::size_t copy_scratch(std::size_t count) {
  constexpr std::size_t kTile = 256;  // a tile of Thrust's is larger, and has a word or two
  return (std::size_t{1} << 20) + 16 * (count / kTile + 1);
}

std::size_t copy_above(const CopyJob& job, cudaStream_t stream) {
  Lender lender(job.scratch);
  const auto numbers = thrust::make_counting_iterator(std::uint32_t{0});
  const auto from = thrust::make_zip_iterator(numbers, job.x.data());
  const auto to = thrust::make_zip_iterator(job.positions.data(), job.values.data());
  const auto end = thrust::copy_if(thrust::cuda::par(lender).on(stream), from,
                                   from + static_cast<std::ptrdiff_t>(job.x.size()), job.x.data(),
                                   to, IsAbove{job.bound});
  return static_cast<std::size_t>(end - to);
}

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
