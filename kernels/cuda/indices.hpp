// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/cuda/eliasfano.hpp"

namespace winnow::kernels::cuda {

// Decoders of raw32 and bitmap (docs/message_format.md) in device memory: the indices that the host
// reads, and a refusal of what it refuses. Bytes are 8-byte aligned. Work is enqueued on
// exec.stream, which must belong to the current device; it does not synchronise or allocate, so a
// CUDA graph can capture it. CudaError where a launch is refused, UsageError for wrong sizes or in
// a build without CUDA.

/// 32 bits an index, and zeros to a multiple of 8 bytes. Needs no scratch.
void raw32_decode(const Exec& exec, const DeviceDecodeJob& job);

/// A bit for each of `count` positions, and zeros to a multiple of 8 bytes.
void bitmap_decode(const Exec& exec, const DeviceDecodeJob& job);

/// Bytes of scratch of bitmap_decode: 8 for each 8 KiB of it.
std::size_t bitmap_decode_scratch(std::uint64_t count);

}  // namespace winnow::kernels::cuda
