// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <winnow/elements.hpp>

namespace winnow::kernels {

// Conversions of one element between float32 and 16 bits, for all bodies. Integer operations, and
// float ones that are exact or round once to nearest even.

constexpr float widen_bf16(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

constexpr float widen_fp16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, size = (half & 0x7fffu) << 13;
  constexpr std::uint32_t kSpecial = 0x7c00u << 13;  // exponent 31: infinite or NaN
  // 2^112 moves the exponent to float32's, of subnormals too.
  const float finite = std::bit_cast<float>(size) * 0x1p112f;
  const std::uint32_t special = size + (0x7f800000u - kSpecial);
  return std::bit_cast<float>(sign |
                              (size >= kSpecial ? special : std::bit_cast<std::uint32_t>(finite)));
}

constexpr std::uint16_t narrow_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>(is_nan ? bits >> 16 | 0x40u : rounded);
}

constexpr std::uint16_t narrow_fp16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), size = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  constexpr std::uint32_t kInfinity = 0x7f800000, kSmallestNormal = 0x38800000;  // 2^-14
  constexpr std::uint32_t kRebias = (127 - 15) << 10;
  // Subnormals count 2^-24, and so does the fraction of a float32 in [0.5, 1).
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
  const std::uint32_t rounded = ((size + 0xfffu + (size >> 13 & 1)) >> 13) - kRebias;
  const std::uint32_t normal = rounded < 0x7c00u ? rounded : 0x7c00u;
  const std::uint32_t number = size < kSmallestNormal ? subnormal : normal;
  return static_cast<std::uint16_t>(sign | (size > kInfinity ? 0x7e00u : number));
}

/// The smallest magnitude that becomes infinite.
inline constexpr float kBf16Overflow = std::bit_cast<float>(0x7f7f8000u);
inline constexpr float kFp16Overflow = 65520;

/// The smallest magnitude that becomes infinite as an element of a gradient.
constexpr float overflow_of(ElementType type) {
  if (type == ElementType::bf16) return kBf16Overflow;
  return type == ElementType::fp16 ? kFp16Overflow : std::numeric_limits<float>::infinity();
}

}  // namespace winnow::kernels
