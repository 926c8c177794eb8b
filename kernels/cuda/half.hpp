// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

// Memory is of the device. Work is enqueued on exec.stream, which must belong to the current
// device; it needs no scratch, does not synchronise or allocate, so a CUDA graph can capture it.
// CudaError where a launch is refused, UsageError in a build without CUDA.

/// The bodies of kernels::widen and kernels::narrow. By 8 and 16 bytes where spans are aligned to
/// them.
void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out);
void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out);

/// kernels::fits: *too_large becomes 0, or 1 where it returns false.
void fits(const Exec& exec, ElementType type, std::span<const float> in, float factor,
          std::uint32_t* too_large);

}  // namespace winnow::kernels::cuda
