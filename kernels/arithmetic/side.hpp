// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace winnow::kernels {

/// Which elements compete: all, or those that are not negative, or those that are not positive.
/// Zeros of either sign are on both sides.
enum class Side : std::uint8_t { both, positive, negative };

/// The key that compares elements of a side: |x|, or for one side x or -x, which is below 0 for an
/// element of the other side. (bits(x) & mask) ^ flip is one instruction of AVX-512 and of a GPU.
struct SideKey {
  std::uint32_t mask, flip;

  // NOLINTNEXTLINE(google-explicit-constructor): it is the side
  constexpr SideKey(Side side)
      : mask(side == Side::both ? 0x7fffffff : 0xffffffff),
        flip(side == Side::negative ? 0x80000000 : 0) {}
  constexpr float of(float x) const {
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) & mask) ^ flip);
  }
  /// Whether a finite x is on this side.
  constexpr bool has(float x) const { return of(x) >= 0; }
};

}  // namespace winnow::kernels
