// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/eliasfano.hpp"

namespace winnow::kernels::cuda {

/// What eliasfano_decode works on: memory of the device, but for this struct.
struct DeviceDecodeJob {
  std::uint64_t count = 0;
  std::span<const std::byte> in;      ///< eliasfano_shape(count, k).bytes(), 8-byte aligned
  std::span<std::uint32_t> index;     ///< k elements
  std::uint32_t* refused = nullptr;   ///< becomes 1 where kernels::eliasfano_decode is false
  std::span<std::byte> scratch = {};  ///< eliasfano_decode_scratch zeros, 256-byte aligned
};

/// Bytes of scratch: 8 for each 8 KiB of the high part.
std::size_t eliasfano_decode_scratch(std::uint64_t count, std::uint64_t k);

/// kernels::eliasfano_decode, enqueued on exec.stream, which must belong to the current device.
/// Does not synchronise or allocate, so a CUDA graph can capture it. Throws CudaError where a
/// launch is refused, UsageError for wrong sizes or in a build without CUDA.
void eliasfano_decode(const Exec& exec, const DeviceDecodeJob& job);

}  // namespace winnow::kernels::cuda
