// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

// Work on device memory is enqueued on exec.stream, which must belong to the current device. It
// needs no scratch, does not synchronise or allocate, so a CUDA graph can capture it. CudaError
// where a launch is refused, UsageError in a build without CUDA.

/// The bodies of kernels::fill and kernels::copy. With a condition a copy takes whole floats of the
/// device alone.
void fill(const Exec& exec, std::span<float> elements, float value);
void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);

/// Writes what the host has in `from` now: it travels with the launches, so the host may go on
/// writing there, and a graph captures it by value. Whole words of 4 bytes at a multiple of 4; for
/// short lists, some KiB a launch.
void store(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);

}  // namespace winnow::kernels::cuda
