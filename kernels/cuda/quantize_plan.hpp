// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/cuda/feedback_quantize.cuh"
#include "kernels/value_coding.hpp"

namespace winnow::kernels::cuda {

/// The kernels' input for the elements of `owner`; for owner self without a message.
inline QuantizeTask make_quantize_task(const FeedbackQuantizeJob& job, std::uint32_t owner) {
  const std::span<const FeedbackPiece> pieces = job.pieces.host;
  QuantizeTask task{.only = pieces.size() == 1 ? pieces[0] : FeedbackPiece{},
                    .pieces = job.pieces.there,
                    .piece_count = static_cast<std::uint32_t>(pieces.size()),
                    .type = pieces.empty() ? ElementType::float32 : pieces[0].gradient.type(),
                    .decay = job.decay,
                    .partition = job.partition,
                    .owner = owner,
                    .count = job.partition.local_count(owner),
                    .block = job.format.block,
                    .block_shift = static_cast<std::uint32_t>(
                        job.format.block == 0 ? 0 : std::countr_zero(job.format.block)),
                    .span = std::max(job.format.block, kQuantizeTile),
                    .padded = 0,
                    .key = job.key,
                    .scales = nullptr,
                    .codes = nullptr,
                    .not_finite = job.not_finite};
  if (owner == job.self) return task;
  const std::span<std::byte> out = job.out[owner];
  const ValueLayout layout(job.format, task.count);
  task.padded = (layout.bytes - layout.scale_bytes) * 8 / std::max(job.format.coding->bits, 1U);
  task.scales = reinterpret_cast<float*>(out.data());
  task.codes = out.data() + layout.scale_bytes;
  return task;
}

inline FeedbackOwn make_own_kernel(const FeedbackQuantizeJob& job) {
  return {make_quantize_task(job, job.self), job.own.data()};
}

/// Blocks of threads, one a span.
inline unsigned quantize_blocks(const QuantizeTask& task) {
  return static_cast<unsigned>((task.count + task.span - 1) / task.span);
}

/// Calls body(kernel) with the kernel of a format.
template <class Body>
void visit_quantize_kernel(const ValueFormat& format, const QuantizeTask& task, const Body& body) {
  visit_coding(*format.coding, [&](auto coding) {
    using Coding = decltype(coding);
    if constexpr (Coding::kLine.stochastic) {
      if (format.rounding == Rounding::stochastic) {
        body(FeedbackQuantize<Coding, Rounding::stochastic>{task});
        return;
      }
    }
    body(FeedbackQuantize<Coding, Rounding::nearest>{task});
  });
}

}  // namespace winnow::kernels::cuda
