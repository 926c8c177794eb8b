// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/add_to.hpp"
#include "kernels/arithmetic/partition.hpp"

namespace winnow::kernels::cuda {

// A list of selected elements, owner by owner: what goes into the message to each. Memory is of the
// device, but for the structs. Work is enqueued on exec.stream, which must belong to the current
// device; it does not synchronise or allocate, so a CUDA graph can capture it. CudaError where a
// launch is refused, UsageError for wrong sizes or in a build without CUDA.

/// What split_by_owner works on.
struct DeviceSplitJob {
  SparseView list = {};  ///< by position of the partition
  Partition partition{1, 0};
  std::span<std::uint32_t> local = {};  ///< as many as in the list: their local numbers
  std::span<float> value = {};          ///< as many
  std::span<std::uint32_t> begin = {};  ///< owners + 1
  std::span<std::byte> scratch = {};    ///< split_scratch bytes, 256-byte aligned
};

/// Bytes of scratch: 4 for each unit of 64 positions and a few.
std::size_t split_scratch(const Partition& partition);

/// Sorts the list by owner: entries [begin[o], begin[o + 1]) of local and value are those of owner
/// o, ascending. Reads the list twice and writes it once.
void split_by_owner(const Exec& exec, const DeviceSplitJob& job);

/// index[j] = the position of the element that has local number local[j] at `owner`; both may be
/// the same memory.
void positions_of(const Exec& exec, const Partition& partition, std::uint32_t owner,
                  std::span<const std::uint32_t> local, std::span<std::uint32_t> index);

}  // namespace winnow::kernels::cuda
