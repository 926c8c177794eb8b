// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/check_values.cuh"
#include "kernels/cuda/dequantize.cuh"
#include "kernels/cuda/feedback_quantize.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantize_plan.hpp"
#include "kernels/cuda/value_coding.hpp"

namespace winnow::kernels::cuda {

namespace {

/// The messages, and nothing of owner self.
void enqueue(const Exec& exec, const DeviceQuantizeJob& job, const ValueFormat& format,
             const RandomKey& key) {
  for (std::uint32_t owner = 0; owner < job.job.partition.owners(); ++owner) {
    if (owner == job.job.self) continue;
    const QuantizeTask task = make_quantize_task(job, owner, format, key);
    if (task.count == 0) continue;
    visit_quantize_kernel(
        format, [&](auto kernel) { launch<decltype(kernel)>(exec, quantize_blocks(task), task); });
  }
}

}  // namespace

void feedback_quantize(const Exec& exec, const DeviceQuantizeJob& job, const ValueFormat& format,
                       const RandomKey& key) {
  WINNOW_EXPECTS(job.not_finite != nullptr, "feedback_quantize needs a word for not_finite");
  enqueue(exec, job, format, key);
  if (job.job.self >= job.job.partition.owners()) return;
  const FeedbackOwn::Task own = make_own_task(job);
  if (own.message.count > 0) {
    launch<FeedbackOwn>(exec, blocks_of((own.message.count + 3) / 4), own);
  }
}

void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out) {
  const FeedbackPiece piece{.gradient = {}, .residual = values, .base = 0};
  const QuantizeJob job{
      .pieces = {&piece, 1}, .decay = 1, .partition = Partition(1, values.size())};
  enqueue(exec, {.job = job, .out = {&out, 1}}, format, key);
}

void dequantize(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                std::span<const std::byte> coded, std::uint64_t begin, std::span<float> out) {
  if (out.empty()) return;
  launch<Dequantize>(exec, blocks_of((out.size() + 3) / 4),
                     {device_values(format, k, coded), begin, out.data(), out.size()});
}

void check_values(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                  std::span<const std::byte> coded, std::uint32_t* refused) {
  const CheckTask task = make_check_task(format, k, coded, refused);
  if (k == 0) return;
  visit_coding(*format.coding, [&](auto coding) {
    launch<CheckValues<decltype(coding)>>(exec, blocks_of(task.scale_words + task.end_word), task);
  });
}

}  // namespace winnow::kernels::cuda
