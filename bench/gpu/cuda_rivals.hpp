// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::bench {

/// The spans of sort_by_magnitude: device memory, `x.size()` elements each.
struct SortJob {
  std::span<const float> x;
  std::span<std::uint32_t> keys = {}, sorted_keys = {}, positions = {}, sorted_positions = {};
  std::span<std::byte> scratch = {};  ///< sort_scratch bytes
};

std::size_t sort_scratch(std::size_t count);

/// Sorts by |x|, the largest first, with positions, by cub::DeviceRadixSort.
void sort_by_magnitude(const SortJob& job, cudaStream_t stream);

/// The spans of copy_above: device memory.
struct CopyJob {
  std::span<const float> x;
  float bound = 0;                          ///< not negative
  std::span<std::uint32_t> positions = {};  ///< x.size() elements
  std::span<float> values = {};             ///< likewise
  std::span<std::byte> scratch = {};        ///< copy_scratch bytes
};

std::size_t copy_scratch(std::size_t count);

/// Copies the elements of at least that magnitude, and their positions, in order, by
/// thrust::copy_if. Waits for the device, which says how many there are; returns that.
std::size_t copy_above(const CopyJob& job, cudaStream_t stream);

}  // namespace winnow::bench
