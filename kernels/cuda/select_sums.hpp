// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/cuda/terms.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::kernels::cuda {

/// What select_sums works on: memory of the device, but for this struct.
struct DeviceSelectSumsJob {
  OwnedSums owned = {};               ///< but for .listed and own.bound; own.partition is in host
                                      ///< memory
  const SelectResult* fed = nullptr;  ///< where feedback_select said how many it listed, and by
                                      ///< which bound
  const DeviceTerm* terms = nullptr;  ///< lists by local number, coded or not, one a rank
  std::uint32_t term_count = 0;
  SumLists out = {};                       ///< touched and sum have owned.most places, or count
  std::uint64_t* touched_count = nullptr;  ///< becomes how many of them are written
  SelectBound* state = nullptr;            ///< carried from step to step
  SelectResult* result = nullptr;          ///< written by the last kernel
  std::span<std::byte> scratch = {};       ///< select_sums_scratch bytes, 256-byte aligned
};

/// Bytes of scratch: 4 for each own element, 8 for each place of own.index and of `most`, 4 for
/// each rank and 4096 own elements, and a few.
std::size_t select_sums_scratch(const OwnedSums& owned, std::uint32_t term_count);

/// kernels::select_sums with the same bits in `out`, of `finite` and of what it learns, while
/// candidates and passes tell of the work done here: enqueued on exec.stream, which must belong to
/// the current device; what it learns and says stays there. Reads the terms twice, and of the
/// residual what they name; all own elements of it only where the bound was not good. Does not
/// synchronise or allocate, so a CUDA graph can capture it; what is in the job itself is captured
/// by value. Where a sum is not finite the bound stays, and so it does where terms name more than
/// out.touched has room for (SelectResult::overflow). Throws CudaError where a launch is refused,
/// UsageError for wrong sizes or in a build without CUDA.
void select_sums(const Exec& exec, const DeviceSelectSumsJob& job);

}  // namespace winnow::kernels::cuda
