// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/feedback_select.hpp"

namespace winnow::kernels::cuda {

/// What the pass leaves in the gradient. Zeros cost 4 bytes an element more.
enum class GradientAfter : std::uint8_t {
  zero,
  unspecified,  ///< as it was, but NaN where acc is not finite
};

/// What feedback_select works on: memory of the device, but for this struct.
struct DeviceSelectJob {
  FeedbackSpans spans = {};             ///< below 2^31 elements; own.partition is in host memory
  std::uint32_t base = 0;               ///< added to each index: position of the first element
  std::span<std::uint32_t> index = {};  ///< k elements each
  std::span<float> value = {};
  SelectBound* state = nullptr;    ///< carried from step to step
  SelectResult* result = nullptr;  ///< written by the last kernel
  /// In device memory, read in the place of spans.own.bound when the work runs: the bound of
  /// select_sums' state, say. Any number is good: one of 0, as before the first step, lists all
  /// that there is room for.
  const float* own_bound = nullptr;
  GradientAfter gradient_after = GradientAfter::zero;
  std::span<std::byte> scratch = {};  ///< feedback_select_scratch bytes, 256-byte aligned
};

/// Bytes of scratch for `count` elements of which k are selected: 16 (k + 2048) and a few.
std::size_t feedback_select_scratch(std::size_t count, std::size_t k);

/// kernels::feedback_select with the same bits, own units too: enqueued on exec.stream, which must
/// belong to the current device; what it learns and says stays there. Where the carried bound was
/// good it reads gradient and residual once and writes the residual once, by 16 bytes where they
/// are aligned to them; else it reads the residual up to 4 times more. Does not synchronise or
/// allocate, so a CUDA graph can capture it; what is in the job itself is captured by value, and so
/// a graph with own units wants own_bound. Throws CudaError where a launch is refused, UsageError
/// for wrong sizes or in a build without CUDA.
void feedback_select(const Exec& exec, const DeviceSelectJob& job);

/// What feedback_threshold works on, likewise.
struct DeviceThresholdJob {
  FeedbackSpans spans = {};  ///< as in DeviceSelectJob
  std::uint32_t base = 0;    ///< likewise
  float bound = 0;           ///< above 0
  /// A list that parameters fill one after the other, with room for all elements that are not own.
  std::span<std::uint32_t> index = {};
  std::span<float> value = {};
  std::uint64_t* kept = nullptr;   ///< entries of the list, which grow by what is selected
  SelectResult* result = nullptr;  ///< written in the end; one pass, and all that reach the bound
  GradientAfter gradient_after = GradientAfter::zero;
  std::span<std::byte> scratch = {};  ///< feedback_threshold_scratch bytes, 256-byte aligned
};

/// Bytes of scratch for `count` elements: a few for each 4096 of them.
std::size_t feedback_threshold_scratch(std::size_t count);

/// kernels::feedback_threshold with the same bits, own units too, behind what the list has; what
/// finds no room in it stays in the residual. In all else like feedback_select, in one pass.
void feedback_threshold(const Exec& exec, const DeviceThresholdJob& job);

}  // namespace winnow::kernels::cuda
