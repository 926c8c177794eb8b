// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <winnow/error.hpp>

#include "kernels/cuda/feedback_quantize.cuh"
#include "kernels/cuda/value_coding.hpp"
#include "kernels/value_layout.hpp"

namespace winnow::kernels::cuda {

/// What the kernel is told of a job whose message has at least one value.
inline QuantizeTask make_quantize_task(const DeviceQuantizeJob& job, const ValueFormat& format,
                                       const RandomKey& key) {
  WINNOW_EXPECTS(job.pieces.size() == 1 || job.device_pieces != nullptr || job.pieces.empty(),
                 "several pieces need their list in device memory");
  const ValueLayout layout(format, job.count);
  WINNOW_EXPECTS(job.out.size() == layout.bytes, "the message must have value_bytes bytes");
  return {.only = job.pieces.size() == 1 ? job.pieces[0] : FeedbackPiece{},
          .pieces = job.device_pieces,
          .piece_count = static_cast<std::uint32_t>(job.pieces.size()),
          .decay = job.decay,
          .count = job.count,
          .block = format.block,
          .span = std::max(format.block, kQuantizeTile),
          .padded = (layout.bytes - layout.scale_bytes) * 8 / format.coding->bits,
          .key = Philox::key(key),
          .name = key,
          .scales = reinterpret_cast<float*>(job.out.data()),
          .codes = job.out.data() + layout.scale_bytes,
          .not_finite = job.not_finite};
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
