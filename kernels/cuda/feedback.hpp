// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

// The bodies of kernels::feedback_add and feedback_keep for device memory: enqueued on exec.stream,
// which must belong to the current device. Memory is moved by 16 bytes where a span is aligned to
// them. They need no scratch, do not synchronise or allocate, so a CUDA graph can capture them.
// CudaError where a launch is refused, UsageError in a build without CUDA.

void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay);
void feedback_keep(const Exec& exec, std::span<float> residual, std::span<const float> gradient,
                   float decay);

}  // namespace winnow::kernels::cuda
