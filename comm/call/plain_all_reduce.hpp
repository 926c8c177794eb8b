// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <winnow/allreducer.hpp>

#include "comm/call/request.hpp"
#include "kernels/arithmetic/element.hpp"

namespace winnow::comm {

/// An all-reduce that is no sum of gradients: of elements of other types, or of the minimum,
/// maximum or product. It travels dense, without header, residual or poison bit, in one collective
/// over all segments, which are of one type.
class PlainAllReduce final : public Request {
 public:
  using Request::Request;
  /// Whether these are.
  static bool takes(std::span<const Segment> segments, ReduceOp op) {
    return op > ReduceOp::average || std::ranges::any_of(segments, [](const Segment& segment) {
             return !kernels::is_gradient(segment.elements.type());
           });
  }

  bool is_plain() const override { return true; }
  Bucket plan(std::uint64_t id, const Options& options, const World& world,
              const compress::Compressor& compressor, ParameterStates& states) const override;
  /// Works in place if the segments are adjacent in memory, otherwise through scratch of the same
  /// size. If it throws, all elements are zero.
  bool reduce(const CallParts& call) const override;
};

}  // namespace winnow::comm
