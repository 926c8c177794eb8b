// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback_quantize.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantize_plan.hpp"
#include "kernels/cuda/value_coding.hpp"

namespace winnow::kernels::cuda {

namespace {

void enqueue(const Exec& exec, const DeviceQuantizeJob& job, const ValueFormat& format,
             const RandomKey& key) {
  if (job.count == 0) return;
  const QuantizeTask task = make_quantize_task(job, format, key);
  visit_quantize_kernel(
      format, [&](auto kernel) { launch<decltype(kernel)>(exec, quantize_blocks(task), task); });
}

}  // namespace

void feedback_quantize(const Exec& exec, const DeviceQuantizeJob& job, const ValueFormat& format,
                       const RandomKey& key) {
  WINNOW_EXPECTS(job.not_finite != nullptr, "feedback_quantize needs a word for not_finite");
  WINNOW_CUDA_TRY(cudaMemsetAsync(job.not_finite, 0, sizeof *job.not_finite,
                                  static_cast<cudaStream_t>(exec.stream)));
  enqueue(exec, job, format, key);
}

void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out) {
  const FeedbackPiece piece{.gradient = {}, .residual = values, .base = 0};
  enqueue(exec, {.pieces = {&piece, 1}, .count = values.size(), .out = out}, format, key);
}

}  // namespace winnow::kernels::cuda
