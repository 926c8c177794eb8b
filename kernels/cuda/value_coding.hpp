// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/value_coding.hpp"

namespace winnow::kernels::cuda {

/// What feedback_quantize works on, all of it in device memory but for the structs, and lists of
/// them, themselves.
struct DeviceQuantizeJob {
  QuantizeJob job;
  /// The list of pieces in device memory, which must last until the work is done; may be null where
  /// there is one piece.
  const FeedbackPiece* device_pieces = nullptr;
  std::span<const std::span<std::byte>> out = {};  ///< a message for each owner, 8-byte aligned
  std::span<float> own = {};                       ///< acc of owner job.self
  std::uint32_t* not_finite = nullptr;             ///< becomes 1 where an acc is not finite
  /// In device memory, read in the place of the argument when the work runs.
  const RandomKey* key = nullptr;
};

/// kernels::feedback_quantize with the same bits, one launch a message: enqueued on exec.stream,
/// which must belong to the current device. Reads gradient and residual once (twice where a scale
/// block has more than 2048 values), by 16 bytes where they are aligned to them. Needs no scratch,
/// does not synchronise or allocate, so a CUDA graph can capture it; `key` is captured by value, so
/// a graph of stochastic rounding wants job.key, or each replay rounds by the same random words. A
/// piece without gradient is quantized as it is. Throws CudaError where a launch is refused,
/// UsageError for wrong sizes or in a build without CUDA.
void feedback_quantize(const Exec& exec, const DeviceQuantizeJob& job, const ValueFormat& format,
                       const RandomKey& key);

/// The bodies of kernels::quantize and kernels::dequantize for device memory, in the same way.
void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out);
void dequantize(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                std::span<const std::byte> coded, std::uint64_t begin, std::span<float> out);

/// kernels::check_values, in the same way: *refused becomes 1 where it returns false, and stays as
/// it is elsewhere.
void check_values(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                  std::span<const std::byte> coded, std::uint32_t* refused);

}  // namespace winnow::kernels::cuda
