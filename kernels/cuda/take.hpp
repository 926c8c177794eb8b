// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/add_to.hpp"

namespace winnow::kernels::cuda {

// The bodies of kernels::take and kernels::put for device memory: enqueued on exec.stream, which
// must belong to the current device. The support is not looked at, for it is there as well: one
// that does not lie within the elements reads and writes elsewhere. They need no scratch, do not
// synchronise or allocate, so a CUDA graph can capture them. CudaError where a launch is refused,
// UsageError in a build without CUDA.

void take(const Exec& exec, std::span<float> elements, std::uint32_t base,
          std::span<const std::uint32_t> index, std::span<float> value);
void put(const Exec& exec, std::span<float> elements, std::uint32_t base, const SparseView& list);

}  // namespace winnow::kernels::cuda
