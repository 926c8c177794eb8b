// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/partition.hpp"
#include "kernels/terms.hpp"

namespace winnow::kernels {

// A list of selected elements, owner by owner: what goes into the message to each. A CUDA graph can
// capture the operations. UsageError for wrong sizes.

/// The input and output of split_by_owner.
struct SplitJob {
  SparseView list = {};  ///< by position of the partition
  Partition partition{1, 0};
  std::span<std::uint32_t> local = {};  ///< as many as in the list: their local numbers
  std::span<float> value = {};          ///< as many; local and value are apart from the list
  std::span<std::uint32_t> begin = {};  ///< owners + 1
  std::uint32_t self = 0xffffffff;      ///< the owner that no entry is of, if there is one
};

/// Bytes of scratch that split_by_owner takes for a list of k entries, in one piece: on the host 4
/// for each entry and each owner, on a device 4 for each unit of 64 positions and a few.
std::size_t split_scratch(const Exec& exec, const Partition& partition, std::size_t k);

/// Sorts the list by owner: entries [begin[o], begin[o + 1]) of local and value are those of owner
/// o, ascending. Reads the list twice and writes it once.
void split_by_owner(const Exec& exec, const SplitJob& job);

/// index[j] = the position of the element that has local number local[j] at `owner`; both may be
/// the same memory.
void positions_of(const Exec& exec, const Partition& partition, std::uint32_t owner,
                  std::span<const std::uint32_t> local, std::span<std::uint32_t> index);

}  // namespace winnow::kernels
