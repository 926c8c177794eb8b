// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <winnow/elements.hpp>

#include "kernels/arithmetic/half.hpp"
#include "kernels/arithmetic/partition.hpp"

namespace winnow::kernels {

// Sums that elements of a gradient cannot hold, for all bodies: the element becomes the largest
// finite one, and the rest of the sum goes into a residual.

/// The magnitudes that elements of one type hold.
struct ElementRange {
  std::uint32_t overflow;  ///< bits of the smallest that rounds to infinity
  std::uint32_t largest;   ///< bits of the largest finite element

  /// Whether a finite float32 is too large. None is for elements of float32.
  constexpr bool exceeded_by(float x) const {
    constexpr std::uint32_t kInfinity = 0x7f800000;
    const std::uint32_t size = std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
    return size >= overflow && size < kInfinity;
  }
  /// The value that the element becomes: finite if x is.
  constexpr float clip(float x) const {
    const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000u;
    return exceeded_by(x) ? std::bit_cast<float>(sign | largest) : x;
  }
};

constexpr ElementRange range_of(ElementType type) {
  const float largest = type == ElementType::bf16   ? std::bit_cast<float>(0x7f7f0000u)
                        : type == ElementType::fp16 ? 65504.0F
                                                    : std::numeric_limits<float>::max();
  return {std::bit_cast<std::uint32_t>(overflow_of(type)), std::bit_cast<std::uint32_t>(largest)};
}

/// How much this rank keeps of the rests of sums that it holds together with other ranks.
struct RestKeeper {
  Partition partition{1, 0};  ///< of the positions among ranks, whose owners keep rests
  std::uint32_t owner = 0;    ///< this rank
  float by = 1;               ///< so many times the rest

  /// The keeper of a rank without a residual there.
  static constexpr RestKeeper nobody() { return {.owner = 1}; }

  constexpr bool keeps(std::uint64_t position) const {
    return partition.owner_of_unit(position / Partition::kUnit) == owner;
  }
  /// The residual with the rest of a sum that is too large. Three roundings; the first is exact
  /// below 2^29 in fp16.
  constexpr float add_rest(float residual, float sum, ElementRange range) const {
    return residual + (sum - range.clip(sum)) * by;
  }
};

}  // namespace winnow::kernels
