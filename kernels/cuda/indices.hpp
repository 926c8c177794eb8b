// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/cuda/eliasfano.hpp"

namespace winnow::kernels::cuda {

// The index codings raw32 and bitmap (docs/message_format.md) in device memory: the bytes that the
// host writes, and a refusal of those that it refuses. Spans of bytes are 8-byte aligned. Work is
// enqueued on exec.stream, which must belong to the current device; it does not synchronise or
// allocate, so a CUDA graph can capture it. CudaError where a launch is refused, UsageError for
// wrong sizes or in a build without CUDA.

/// 32 bits an index, and zeros to a multiple of 8 bytes.
void raw32_encode(const Exec& exec, std::span<const std::uint32_t> index, std::span<std::byte> out);

/// And back; needs no scratch.
void raw32_decode(const Exec& exec, const DeviceDecodeJob& job);

/// A bit for each of `count` positions, and zeros to a multiple of 8 bytes.
void bitmap_encode(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index,
                   std::span<std::byte> out);

/// Bytes of scratch of bitmap_decode: 8 for each 8 KiB of it.
std::size_t bitmap_decode_scratch(std::uint64_t count);

/// And back.
void bitmap_decode(const Exec& exec, const DeviceDecodeJob& job);

}  // namespace winnow::kernels::cuda
