// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/measure.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/hash.hpp"
#include "kernels/with_type.hpp"

namespace winnow::comm {
namespace {

/// Payloads of NaN are no result: a native collective may leave others on each rank.
template <class T>
std::uint64_t bits_of(T element) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    return std::bit_cast<Bits>(std::isnan(element) ? std::numeric_limits<T>::quiet_NaN() : element);
  } else {
    return static_cast<std::make_unsigned_t<T>>(element);
  }
}

}  // namespace

void measure(std::span<const Segment> segments, const Bucket& bucket, Stats& call) {
  std::uint64_t sum = 0, nonzero = 0, weight = 1;
  for (const Segment& segment : segments) {
    kernels::with_type(segment.elements.type(), [&]<class T>(T) {
      for (const T element : segment.elements.as<T>()) {
        sum += bits_of(element) * weight;
        weight += 2;
        nonzero += element != 0 ? 1 : 0;
      }
    });
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
