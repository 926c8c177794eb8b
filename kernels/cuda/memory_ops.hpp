// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

// The bodies of kernels::fill and kernels::copy for device memory: enqueued on exec.stream, which
// must belong to the current device. They need no scratch, do not synchronise or allocate, so a
// CUDA graph can capture them. CudaError where a launch is refused, UsageError in a build without
// CUDA.

void fill(const Exec& exec, std::span<float> elements, float value);
void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);

}  // namespace winnow::kernels::cuda
