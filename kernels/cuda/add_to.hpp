// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/add_to.hpp"
#include "kernels/cuda/terms.hpp"

namespace winnow::kernels::cuda {

// All memory is of the device, but for the structs. Work is enqueued on exec.stream, which must
// belong to the current device; it needs no scratch, does not synchronise or allocate, so a CUDA
// graph can capture it. CudaError where a launch is refused, UsageError in a build without CUDA.

/// kernels::add_to for one list, whose values may be coded; *not_finite becomes 1 where it
/// returns false, and stays as it is elsewhere.
void add_to(const Exec& exec, std::span<float> sum, std::uint32_t base, const DeviceTerm& list,
            float factor, std::uint32_t* not_finite);

/// The body of kernels::put_back.
void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list);

/// As many terms travel with a launch.
inline constexpr std::size_t kTermsInArguments = 16;

/// What ordered_sum works on.
struct DeviceSumJob {
  std::span<const DeviceTerm> terms = {};  ///< captured by value where `there` is null
  const DeviceTerm* there = nullptr;       ///< the same in device memory, where there are more than
                                           ///< kTermsInArguments
  std::uint64_t begin = 0;                 ///< position of the first element of sum
  std::span<float> sum;
  float factor = 1;
  std::uint32_t* not_finite = nullptr;  ///< becomes 1 where some sum is not finite
};

/// kernels::ordered_sum: each sum is written once, by 16 bytes where `sum` is aligned to them, and
/// needs no zeros before. A term without indices has a value for each position of the sum.
void ordered_sum(const Exec& exec, const DeviceSumJob& job);

}  // namespace winnow::kernels::cuda
