// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/cuda/message_header.hpp"

namespace winnow::kernels::cuda {

/// What makes a message of values that lie in their place in it. Memory is of the device, but for
/// this struct.
struct DeviceSealJob {
  std::span<std::byte> message;  ///< 8-byte aligned: header, index part, value part
  HeaderBytes header = {};       ///< but for poison and the checksum
  HeaderLayout layout = {};
  PoisonSources poison = {};
  std::uint32_t* poisoned = nullptr;  ///< where not null, becomes 1 where a source says so
  std::size_t padding = 0;  ///< bytes at the end, below 8, which may hold anything and become 0
};

// They write the header, the indices and the checksum in one pass over the message, with the bits
// of kernels::eliasfano_encode and its like and of kernels::checksum. Enqueued on exec.stream,
// which must belong to the current device; no scratch, no synchronisation and no allocation, so a
// CUDA graph can capture it; header and lists are captured by value. CudaError where a launch is
// refused, UsageError for wrong sizes or in a build without CUDA.

/// Of a message without indices.
void seal(const Exec& exec, const DeviceSealJob& job);
/// Ascending indices below `count`.
void seal_raw32(const Exec& exec, const DeviceSealJob& job, std::uint64_t count,
                std::span<const std::uint32_t> index);
void seal_eliasfano(const Exec& exec, const DeviceSealJob& job, std::uint64_t count,
                    std::span<const std::uint32_t> index);
void seal_bitmap(const Exec& exec, const DeviceSealJob& job, std::uint64_t count,
                 std::span<const std::uint32_t> index);

}  // namespace winnow::kernels::cuda
