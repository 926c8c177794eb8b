// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

/// kernels::checksum of `bytes`, a multiple of 4, 8-byte aligned, to *sum. Where sum itself lies
/// among them, at a multiple of 8, its two words count as zero: so a message in device memory is
/// sealed in place. Enqueued on exec.stream, which must belong to the current device; reads the
/// bytes once, needs no scratch, does not synchronise or allocate, so a CUDA graph can capture it.
/// Throws CudaError where a launch is refused, UsageError for wrong sizes or in a build without
/// CUDA.
void checksum(const Exec& exec, std::span<const std::byte> bytes, std::uint64_t* sum);

/// The same of several, up to 128 in a launch: sums[m] of messages[m], none of which a sum lies in.
/// The list is captured by value.
void checksums(const Exec& exec, std::span<const std::span<const std::byte>> messages,
               std::uint64_t* sums);

}  // namespace winnow::kernels::cuda
