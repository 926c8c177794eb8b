// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/measure.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

#include "comm/hash.hpp"

namespace winnow::comm {
namespace {

/// Payloads of NaN are no result: a native collective may leave others on each rank.
std::uint32_t bits_of(float element) {
  constexpr std::uint32_t kNaN = 0x7fc00000;
  return std::isnan(element) ? kNaN : std::bit_cast<std::uint32_t>(element);
}

}  // namespace

void measure(std::span<const Segment> segments, const Bucket& bucket, Stats& call) {
  std::uint64_t sum = 0, nonzero = 0, weight = 1;
  for (const Segment& segment : segments) {
    for (const float element : segment.elements.floats()) {
      sum += bits_of(element) * weight;
      weight += 2;
      nonzero += element != 0 ? 1 : 0;
    }
  }
  call.measured = bucket.count;
  call.nonzero = nonzero;
  call.digest = Hash().add(bucket.count).add(sum).value();

  double squares = 0;
  for (const BucketPart& part : bucket.parts) {
    for (const compress::Piece& piece : part.part.pieces) {
      for (const double left : piece.residual()) squares += left * left;
    }
  }
  call.residual_norm = std::sqrt(squares);
}

}  // namespace winnow::comm
