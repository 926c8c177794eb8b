// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/widened.hpp"

#include <algorithm>

#include "kernels/half.hpp"

namespace winnow::comm {

namespace {

bool is_float(const Segment& segment) {
  return segment.elements.type() == ElementType::float32;
}

}  // namespace

void Widened::widen(const Exec& exec, std::span<const Segment> segments) {
  given_ = floats_ = segments;
  if (std::ranges::all_of(segments, is_float)) return;
  scratch_.assign(segments.begin(), segments.end());
  for (Segment& segment : scratch_) {
    if (is_float(segment)) continue;
    const auto floats = exec.workspace->take<float>(segment.elements.size());
    kernels::widen(exec, segment.elements.type(), segment.elements.halves(), floats);
    segment.elements = floats;
  }
  floats_ = scratch_;
}

bool Widened::fits(const Exec& exec, const Bucket& bucket, std::span<const Exchange> exchanges,
                   float factor) const {
  for (const Exchange& exchange : exchanges) {
    const auto& segments = bucket.parts[exchange.header.part].segments;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const Segment& segment = given_[segments[i]];
      if (is_float(segment)) continue;
      const compress::Piece& piece = exchange.part.pieces[i];
      const bool waits = !exchange.sum.empty();
      const std::span<const float> sums =
          waits ? exchange.sum.subspan(piece.base, piece.elements.size()) : piece.elements;
      if (!kernels::fits(exec, segment.elements.type(), sums, waits ? factor : 1)) return false;
    }
  }
  return true;
}

void Widened::narrow(const Exec& exec) const {
  for (std::size_t s = 0; s < given_.size(); ++s) {
    if (is_float(given_[s])) continue;
    kernels::narrow(exec, given_[s].elements.type(), floats_[s].elements.floats(),
                    given_[s].elements.halves());
  }
}

}  // namespace winnow::comm
