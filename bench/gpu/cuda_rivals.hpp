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

}  // namespace winnow::bench
