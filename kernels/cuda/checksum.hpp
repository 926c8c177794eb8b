// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

/// kernels::checksum of messages, each a multiple of 4 bytes and 8-byte aligned: sums[m], 0 before,
/// of messages[m], up to 128 in a launch. Enqueued on exec.stream, which must belong to the current
/// device; reads the bytes once, needs no scratch, does not synchronise or allocate, so a CUDA
/// graph can capture it; the list is captured by value. Throws CudaError where a launch is refused,
/// UsageError for wrong sizes or in a build without CUDA.
void checksums(const Exec& exec, std::span<const std::span<const std::byte>> messages,
               std::uint64_t* sums);

}  // namespace winnow::kernels::cuda
