// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/check_values.cuh"
#include "kernels/cuda/dequantize.cuh"
#include "kernels/cuda/feedback_quantize.cuh"
#include "kernels/cuda/launch_messages.cuh"
#include "kernels/cuda/quantize_plan.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::kernels::cuda {

namespace {

/// The messages, and nothing of owner self.
void enqueue(const Exec& exec, const FeedbackQuantizeJob& job) {
  for (std::uint32_t owner = 0; owner < job.partition.owners(); ++owner) {
    if (owner == job.self) continue;
    const QuantizeTask task = make_quantize_task(job, owner);
    if (task.count == 0) continue;
    visit_quantize_kernel(job.format, task,
                          [&](const auto& kernel) { launch(exec, quantize_blocks(task), kernel); });
  }
}

}  // namespace

void feedback_quantize(const Exec& exec, const FeedbackQuantizeJob& job) {
  enqueue(exec, job);
  if (job.self >= job.partition.owners()) return;
  const FeedbackOwn own = make_own_kernel(job);
  if (own.task.count > 0) launch<FeedbackOwn>(exec, blocks_of((own.task.count + 3) / 4), own);
}

void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out) {
  const FeedbackPiece piece{.gradient = {}, .residual = values, .base = 0};
  enqueue(exec, {.pieces = {{&piece, 1}, nullptr},
                 .partition = Partition(1, values.size()),
                 .format = format,
                 .key = key,
                 .out = {&out, 1}});
}

void dequantize(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                std::span<const std::byte> coded, std::uint64_t begin, std::span<float> out) {
  if (out.empty()) return;
  launch<Dequantize>(exec, blocks_of((out.size() + 3) / 4),
                     {device_values(format, k, coded), begin, out.data(), out.size()});
}

void check_values(const Exec& exec, const ValueFormat& format,
                  std::span<const CheckValuesJob> jobs) {
  visit_coding(*format.coding, [&](auto coding) {
    launch_messages<CheckValues<decltype(coding)>>(
        exec, jobs, [&](const CheckValuesJob& job) { return make_check_task(format, job); },
        [](const CheckTask& task) { return blocks_with(task.words()); });
  });
}

}  // namespace winnow::kernels::cuda
