// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/cuda/feedback_quantize.cuh"
#include "kernels/value_coding.hpp"

namespace winnow::kernels::cuda {

/// Messages that a launch takes along.
inline constexpr unsigned kQuantizedTogether = 32;

inline QuantizeCall make_quantize_call(const ValueFormat& format) {
  return {.pieces = nullptr,
          .piece_count = 1,
          .type = ElementType::float32,
          .decay = 1,
          .partition = Partition(1, 0),
          .block = format.block,
          .block_shift =
              static_cast<std::uint32_t>(format.block == 0 ? 0 : std::countr_zero(format.block)),
          .span = std::max(format.block, kQuantizeTile),
          .not_finite = nullptr};
}

inline QuantizeCall make_quantize_call(const FeedbackQuantizeJob& job) {
  const std::span<const FeedbackPiece> pieces = job.pieces.host;
  QuantizeCall call = make_quantize_call(job.format);
  call.pieces = job.pieces.placed;
  call.piece_count = static_cast<std::uint32_t>(pieces.size());
  if (!pieces.empty()) call.type = pieces[0].gradient.type();
  call.decay = job.decay;
  call.partition = job.partition;
  call.not_finite = job.not_finite;
  return call;
}

/// The message that `out` becomes.
inline QuantizeMessage make_quantize_message(const ValueFormat& format, const RandomKey& key,
                                             std::uint64_t count, std::span<std::byte> out) {
  const ValueLayout layout(format, count);
  return {.only = {},
          .key = key,
          .owner = 0,
          .count = count,
          .padded = (layout.bytes - layout.scale_bytes) * 8 / std::max(format.coding->bits, 1U),
          .scales = reinterpret_cast<float*>(out.data()),
          .codes = out.data() + layout.scale_bytes};
}

/// The message to an owner. That to owner self has no values: it is not made.
inline QuantizeMessage make_quantize_message(const FeedbackQuantizeJob& job, std::uint32_t owner) {
  if (owner == job.self) return {};
  QuantizeMessage message =
      make_quantize_message(job.format, job.key, job.partition.local_count(owner), job.out[owner]);
  if (job.pieces.host.size() == 1) message.only = job.pieces.host[0];
  message.owner = owner;
  return message;
}

inline FeedbackOwn make_own_kernel(const FeedbackQuantizeJob& job) {
  QuantizeMessage whole = {};
  if (job.pieces.host.size() == 1) whole.only = job.pieces.host[0];
  whole.owner = job.self;
  whole.count = job.partition.local_count(job.self);
  return {make_quantize_call(job), whole, job.own.data()};
}

/// Calls launch(blocks, kernel) for the messages make(0) to make(count - 1), but for those without
/// values: as many together as a launch takes along, a block of threads for each span.
template <class Make, class Launch>
void launch_quantize(const ValueFormat& format, const QuantizeCall& call, std::size_t count,
                     const Make& make, const Launch& launch) {
  MessageTasks<QuantizeMessage, kQuantizedTogether> messages = {};
  std::uint64_t longest = 0;
  const auto launch_as = [&]<class Coding, Rounding kRounding>() {
    const auto spans = static_cast<unsigned>((longest + call.span - 1) / call.span);
    if (messages.count == 1) {
      launch(spans, FeedbackQuantize<Coding, kRounding, 1>{call, {{messages.tasks[0]}, 1}});
    } else if (messages.count > 1) {
      launch(spans * messages.count,
             FeedbackQuantize<Coding, kRounding, kQuantizedTogether>{call, messages});
    }
    messages.count = 0;
    longest = 0;
  };
  visit_coding(*format.coding, [&](auto coding) {
    using Coding = decltype(coding);
    const auto flush = [&] {
      if constexpr (Coding::kLine.stochastic) {
        if (format.rounding == Rounding::stochastic) {
          launch_as.template operator()<Coding, Rounding::stochastic>();
          return;
        }
      }
      launch_as.template operator()<Coding, Rounding::nearest>();
    };
    for (std::size_t i = 0; i < count; ++i) {
      const QuantizeMessage message = make(i);
      if (message.count == 0) continue;
      if (messages.count == kQuantizedTogether) flush();
      messages.tasks[messages.count++] = message;
      longest = std::max(longest, message.count);
    }
    flush();
  });
}

}  // namespace winnow::kernels::cuda
