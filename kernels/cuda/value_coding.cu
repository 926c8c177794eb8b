// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/check_values.cuh"
#include "kernels/cuda/dequantize.cuh"
#include "kernels/cuda/feedback_quantize.cuh"
#include "kernels/cuda/launch_messages.cuh"
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/cuda/quantize_plan.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::kernels::cuda {

namespace {

/// A list on its way into the value part of a message, as a task of Exec::Launches.
struct QuantizedList {
  ValueFormat format;
  RandomKey key;
  std::span<float> values;
  std::byte* out;
};

bool equal(const ValueFormat& a, const ValueFormat& b) {
  return a.coding == b.coding && a.block == b.block && a.rounding == b.rounding;
}

/// Launches tasks that lie behind each other, those of one format together.
void launch_lists(const Exec& exec, std::span<const std::byte> bytes) {
  std::span<const QuantizedList> lists(reinterpret_cast<const QuantizedList*>(bytes.data()),
                                       bytes.size() / sizeof(QuantizedList));
  while (!lists.empty()) {
    const ValueFormat& format = lists.front().format;
    std::size_t alike = 1;
    while (alike < lists.size() && equal(lists[alike].format, format)) ++alike;
    launch_quantize(
        format, make_quantize_call(format), alike,
        [&](std::size_t i) {
          const auto& [of, key, values, out] = lists[i];
          const std::uint64_t size = values.size();
          QuantizeMessage message =
              make_quantize_message(of, key, size, {out, ValueLayout(of, size).bytes});
          message.only.residual = values;
          return message;
        },
        [&](unsigned blocks, const auto& kernel) { launch(exec, blocks, kernel); });
    lists = lists.subspan(alike);
  }
}

}  // namespace

void feedback_quantize(const Exec& exec, const FeedbackQuantizeJob& job) {
  launch_quantize(
      job.format, make_quantize_call(job), job.partition.owners(),
      [&](std::size_t owner) {
        return make_quantize_message(job, static_cast<std::uint32_t>(owner));
      },
      [&](unsigned blocks, const auto& kernel) { launch(exec, blocks, kernel); });
  if (job.self >= job.partition.owners()) return;
  const FeedbackOwn own = make_own_kernel(job);
  if (own.message.count > 0) {
    launch<FeedbackOwn>(exec, blocks_of((own.message.count + 3) / 4), own);
  }
}

void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out) {
  const QuantizedList list{format, key, values, out.data()};
  const auto bytes = std::as_bytes(std::span(&list, 1));
  if (is_collected(exec)) {
    exec.launches->add(&launch_lists, bytes);
  } else {
    launch_lists(exec, bytes);
  }
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
