// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/merge.hpp"

namespace winnow::kernels::cuda {

/// What merge works on: memory of the device, but for this struct.
struct DeviceMergeJob {
  SparseView first = {}, second = {};
  std::span<std::uint32_t> index = {};  ///< room for both lists together
  std::span<float> value = {};
  std::uint64_t* size = nullptr;      ///< becomes how many entries there are
  std::span<std::byte> scratch = {};  ///< merge_scratch bytes, 256-byte aligned
};

/// Bytes of scratch for lists of `entries` together: 8 for each 2048 and a few.
std::size_t merge_scratch(std::size_t entries);

/// kernels::merge with the same bits: enqueued on exec.stream, which must belong to the current
/// device; how long the union is stays there. Reads each list once. Does not synchronise or
/// allocate, so a CUDA graph can capture it. Throws CudaError where a launch is refused, UsageError
/// for wrong sizes or in a build without CUDA.
void merge(const Exec& exec, const DeviceMergeJob& job);

}  // namespace winnow::kernels::cuda
