// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

/// The body of kernels::residual_add for device memory, enqueued on exec.stream, which must belong
/// to the current device. Spans need no alignment beyond a float's; where both lie alike modulo 16
/// bytes, 16 bytes move at a time. Does not synchronise or allocate, so a CUDA graph can capture
/// it. Throws CudaError where the launch is refused, UsageError in a build without CUDA.
void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient);

}  // namespace winnow::kernels::cuda
