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

/// What keep_sums works on, likewise.
struct DeviceKeepSumsJob {
  OwnedSums owned = {};  ///< as in DeviceSelectSumsJob
  const SelectResult* fed =
      nullptr;  ///< of feedback_threshold: all that reach the bound are listed
  const DeviceTerm* terms = nullptr;
  std::uint32_t term_count = 0;
  /// index and value are a list that parameters fill one after the other, with room for all own
  /// elements.
  SumLists out = {};
  std::uint64_t* kept = nullptr;           ///< entries of the list, which grow by what is kept
  std::uint64_t* touched_count = nullptr;  ///< as in DeviceSelectSumsJob
  SelectResult* result = nullptr;          ///< written in the end
  std::span<std::byte> scratch = {};       ///< select_sums_scratch bytes, 256-byte aligned
};

/// kernels::keep_sums with the same bits, behind what the list has, by the bound that the list of
/// own elements was made by. In all else like select_sums, but that the residual is never read
/// where no term is.
void keep_sums(const Exec& exec, const DeviceKeepSumsJob& job);

}  // namespace winnow::kernels::cuda
