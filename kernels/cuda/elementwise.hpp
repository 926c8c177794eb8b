// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

// Memory is of the device. Work is enqueued on exec.stream, which must belong to the current
// device; it needs no scratch, does not synchronise or allocate, so a CUDA graph can capture it.
// CudaError where a launch is refused, UsageError in a build without CUDA.

/// The body of kernels::scale.
void scale(const Exec& exec, std::span<float> elements, float factor);

/// kernels::all_finite: *not_finite becomes 1 where it returns false, and stays as it is
/// elsewhere.
void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite);

/// Writes zeros.
void zero(const Exec& exec, std::span<std::byte> bytes);

}  // namespace winnow::kernels::cuda
