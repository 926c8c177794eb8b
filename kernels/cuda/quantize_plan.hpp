// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <winnow/error.hpp>

#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/cuda/aligned.hpp"
#include "kernels/cuda/feedback_quantize.cuh"
#include "kernels/cuda/value_coding.hpp"

namespace winnow::kernels::cuda {

/// What the kernels are told of what belongs to `owner`; the message is left out.
inline QuantizeTask make_quantize_task(const DeviceQuantizeJob& job, std::uint32_t owner) {
  const std::span<const FeedbackPiece> pieces = job.job.pieces;
  WINNOW_EXPECTS(pieces.size() <= 1 || job.device_pieces != nullptr,
                 "several pieces need their list in device memory");
  WINNOW_EXPECTS(job.out.size() == job.job.partition.owners(),
                 "there must be as many messages as owners");
  return {.only = pieces.size() == 1 ? pieces[0] : FeedbackPiece{},
          .pieces = job.device_pieces,
          .piece_count = static_cast<std::uint32_t>(pieces.size()),
          .decay = job.job.decay,
          .partition = job.job.partition,
          .owner = owner,
          .count = job.job.partition.local_count(owner),
          .block = 0,
          .span = kQuantizeTile,
          .padded = 0,
          .key = {},
          .key_at = job.key,
          .scales = nullptr,
          .codes = nullptr,
          .not_finite = job.not_finite};
}

/// With the message, of which it writes nothing where it has no value.
inline QuantizeTask make_quantize_task(const DeviceQuantizeJob& job, std::uint32_t owner,
                                       const ValueFormat& format, const RandomKey& key) {
  QuantizeTask task = make_quantize_task(job, owner);
  const std::span<std::byte> out = job.out[owner];
  const ValueLayout layout(format, task.count);
  WINNOW_EXPECTS(out.size() == layout.bytes, "each message must have value_bytes bytes");
  expect_word_aligned(out);
  task.block = format.block;
  task.span = std::max(format.block, kQuantizeTile);
  task.padded = (layout.bytes - layout.scale_bytes) * 8 / format.coding->bits;
  task.key = key;
  task.scales = reinterpret_cast<float*>(out.data());
  task.codes = out.data() + layout.scale_bytes;
  return task;
}

inline FeedbackOwn::Task make_own_task(const DeviceQuantizeJob& job) {
  const QuantizeTask message = make_quantize_task(job, job.job.self);
  WINNOW_EXPECTS(job.own.size() == message.count,
                 "own must have as many elements as self has positions");
  return {message, job.own.data()};
}

/// Blocks of threads, one a span.
inline unsigned quantize_blocks(const QuantizeTask& task) {
  return static_cast<unsigned>((task.count + task.span - 1) / task.span);
}

/// Calls body(FeedbackQuantize<...>{}) with the kernel of a format.
template <class Body>
void visit_quantize_kernel(const ValueFormat& format, const Body& body) {
  visit_coding(*format.coding, [&](auto coding) {
    using Coding = decltype(coding);
    if constexpr (Coding::kLine.stochastic) {
      if (format.rounding == Rounding::stochastic) {
        body(FeedbackQuantize<Coding, Rounding::stochastic>{});
        return;
      }
    }
    body(FeedbackQuantize<Coding, Rounding::nearest>{});
  });
}

}  // namespace winnow::kernels::cuda
