// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/value_coding.hpp"

namespace winnow::kernels::cuda {

/// What feedback_quantize works on, all of it in device memory but for the structs themselves.
struct DeviceQuantizeJob {
  /// On the host, as QuantizeJob has them: ascending by base, of device memory.
  std::span<const FeedbackPiece> pieces;
  /// The same list in device memory, which must last until the work is done; may be null where
  /// there is one piece.
  const FeedbackPiece* device_pieces = nullptr;
  float decay = 1;
  std::uint64_t count = 0;              ///< values of the message
  std::span<std::byte> out;             ///< value_bytes(format, count), 8-byte aligned
  std::uint32_t* not_finite = nullptr;  ///< becomes 0, or 1 where an acc is not finite
};

/// kernels::feedback_quantize of one message, with the same bits: enqueued on exec.stream, which
/// must belong to the current device. Reads gradient and residual once (twice where a scale block
/// has more than 2048 values), by 16 bytes where they are aligned to them. Needs no scratch, does
/// not synchronise or allocate, so a CUDA graph can capture it. Throws CudaError where a launch is
/// refused, UsageError for wrong sizes or in a build without CUDA.
void feedback_quantize(const Exec& exec, const DeviceQuantizeJob& job, const ValueFormat& format,
                       const RandomKey& key);

/// The body of kernels::quantize for device memory, in the same way.
void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out);

}  // namespace winnow::kernels::cuda
