// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/partition.hpp"
#include "kernels/cuda/terms.hpp"

namespace winnow::kernels::cuda {

// Values by local number of one owner, on their way to where its positions lie. Memory is of the
// device, but for the structs. Work is enqueued on exec.stream, which must belong to the current
// device; it needs no scratch, does not synchronise or allocate, so a CUDA graph can capture it.
// CudaError where a launch is refused, UsageError for wrong sizes or in a build without CUDA.

/// Elements that begin at a position, a multiple of Partition::kUnit.
struct PlacedSpan {
  std::span<float> elements;
  std::uint64_t base = 0;
};

/// What the values are, and where their positions lie.
struct DeviceOwnedJob {
  Partition partition{1, 0};
  std::uint32_t owner = 0;
  std::span<const PlacedSpan> pieces = {};  ///< ascending by base; a value of a position between
                                            ///< them goes nowhere
  DeviceTerm values = {};  ///< a list by local number, or a value for each of them from 0 on; coded
                           ///< or not
  /// Where not null, how many of the list there are, read when the work runs: at most as many as
  /// it has room for.
  const std::uint64_t* count = nullptr;
};

/// element += value.
void add_owned(const Exec& exec, const DeviceOwnedJob& job);

/// element = value, where that is finite.
void store_owned(const Exec& exec, const DeviceOwnedJob& job);

/// element = value * factor; *not_finite becomes 1 where some element is not finite, and stays as
/// it is elsewhere.
void write_owned(const Exec& exec, const DeviceOwnedJob& job, float factor,
                 std::uint32_t* not_finite);

/// taken[j] = element, which becomes 0, at the positions of job.values; 0 where there is none. What
/// the values are does not matter: taken may be their memory.
void take_owned(const Exec& exec, const DeviceOwnedJob& job, std::span<float> taken);

}  // namespace winnow::kernels::cuda
