// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>

#include "kernels/value_coding.hpp"

namespace winnow::kernels {

// The arithmetic of each value coding on one value; SIMD and device bodies compute the same bits. A
// coding is a struct with
//   kLine                      its line of the table
//   scale(values)              the scale of a block; 0: everything in it is coded as zero
//   scale_of(largest)          where it has scales, the same from the largest magnitude, or
//   scale_of_mean(mean)        from the mean of all addend(x)
//   inverse(scale)             by which nearest and stochastic multiply
//   nearest(x, inverse)        the code, in the low kLine.bits bits, the others zero; x is finite
//   stochastic(x, inverse, w)  the same with the value's random word w, where kLine.stochastic
//   decode(code, scale)        the value
//   kLargestScale              no block has a larger scale; what it decodes to is finite. None is
//                              negative but where kLine.one_sign
//   kInvalidCode               the code that is never written; kNone: there is none
//   kInvalidMask               the bits in which a code is compared with it, if there is one
// Float operations are IEEE 754 binary32, to nearest even, never contracted.

namespace values {

inline constexpr float kLargest = std::numeric_limits<float>::max();
inline constexpr float kSmallestNormal = std::numeric_limits<float>::min();
inline constexpr std::uint64_t kNone = std::uint64_t{1} << 32;

/// u in [0, 1): the word's upper 24 bits.
constexpr float unit(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// 1.5 * 2^23: fl(y + kRounder) has no bits for a fraction, so it rounds |y| < 2^22 to the nearest
/// even integer, which its lowest bits hold in two's complement.
inline constexpr float kRounder = 0x1.8p23f;

/// The integer nearest to |y| < 2^22, ties to even.
constexpr float round_to_nearest(float y) {
  return (y + kRounder) - kRounder;
}

/// The largest integer that is not above |y| < 2^22.
constexpr float round_down(float y) {
  const float nearest = round_to_nearest(y);
  return nearest > y ? nearest - 1 : nearest;
}

/// max |x|; 0 of nothing.
constexpr float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) {
    const float size = v < 0 ? -v : v;
    if (size > largest) largest = size;
  }
  return largest;
}

/// sum fl(Coding::addend(x) * factor) in a fixed order that all vector lengths up to 16 share:
/// element i is added to partial sum i mod 16; then sum j + sum j+8 for j < 8, sum j + sum j+4 for
/// j < 4, and so on.
template <class Coding>
constexpr float sum_of_addends(std::span<const float> x, float factor) {
  float partial[16] = {};
  for (std::size_t i = 0; i < x.size(); ++i) partial[i % 16] += Coding::addend(x[i]) * factor;
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) partial[j] += partial[j + width];
  }
  return partial[0];
}

constexpr bool is_sum(float total) {
  return total >= -kLargest && total <= kLargest;
}

/// The mean of `count` addends; `sum(factor)` is their sum_of_addends. Where the sum overflows, the
/// sum of the addends times 2^-17 does not: blocks have 2^16 values at most.
template <class Sum>
constexpr float mean_of(std::size_t count, const Sum& sum) {
  if (count == 0) return 0;
  const float n = static_cast<float>(count), total = sum(1.0f);
  if (is_sum(total)) return total / n;
  const float seventeenth = sum(0x1p-17f) / n, most = kLargest * 0x1p-17f;
  if (seventeenth >= most) return kLargest;
  return seventeenth > -most ? seventeenth * 0x1p17f : -kLargest;
}
template <class Coding>
constexpr float mean_of(std::span<const float> x) {
  return mean_of(x.size(), [&](float factor) { return sum_of_addends<Coding>(x, factor); });
}

/// The addends of a mean of magnitudes.
struct Magnitudes {
  static constexpr float addend(float x) { return x < 0 ? -x : x; }
};

/// The value itself.
struct Float32 {
  static constexpr ValueCoding kLine{1, "float32", 0, false, 32, true};
  static constexpr float kLargestScale = 0;
  static constexpr std::uint64_t kInvalidCode = kNone;

  static constexpr float scale(std::span<const float>) { return 0; }
  static constexpr float inverse(float) { return 0; }
  static constexpr std::uint32_t nearest(float x, float) { return std::bit_cast<std::uint32_t>(x); }
  static constexpr std::uint32_t stochastic(float x, float, std::uint32_t) { return nearest(x, 0); }
  static constexpr float decode(std::uint32_t code, float) { return std::bit_cast<float>(code); }
};

/// The upper half of a float32. Beyond the largest finite number: that number.
struct Bf16 {
  static constexpr ValueCoding kLine{2, "bf16", 0, true, 16, true};
  static constexpr float kLargestScale = 0;
  static constexpr std::uint64_t kInvalidCode = kNone;
  static constexpr std::uint32_t kLargestCode = 0x7f7f;

  static constexpr float scale(std::span<const float>) { return 0; }
  static constexpr float inverse(float) { return 0; }
  static constexpr std::uint32_t nearest(float x, float) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    return cut(bits, 0x7fff + (bits >> 16 & 1));
  }
  static constexpr std::uint32_t stochastic(float x, float, std::uint32_t word) {
    return cut(std::bit_cast<std::uint32_t>(x), word >> 16);
  }
  static constexpr float decode(std::uint32_t code, float) {
    return std::bit_cast<float>(code << 16);
  }

 private:
  static constexpr std::uint32_t cut(std::uint32_t bits, std::uint32_t raise) {
    const std::uint32_t size = ((bits & 0x7fffffff) + raise) >> 16;
    return (bits >> 31 << 15) | (size < kLargestCode ? size : kLargestCode);
  }
};

/// IEEE 754 binary16 with subnormals. Beyond the largest finite number, 65504: that number.
struct Fp16 {
  static constexpr ValueCoding kLine{3, "fp16", 0, true, 16, true};
  static constexpr float kLargestScale = 0;
  static constexpr std::uint64_t kInvalidCode = kNone;
  static constexpr std::uint32_t kLargestCode = 0x7bff;
  static constexpr std::uint32_t kSmallestNormalBits = 0x38800000;  // of 2^-14 as float32
  static constexpr std::uint32_t kRebias = (127 - 15) << 10;

  static constexpr float scale(std::span<const float>) { return 0; }
  static constexpr float inverse(float) { return 0; }
  static constexpr std::uint32_t nearest(float x, float) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), size = bits & 0x7fffffff;
    // Subnormal codes count 2^-24, and so does the fraction of a float32 in [0.5, 1).
    if (size < kSmallestNormalBits) {
      return sign(bits) |
             (std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u);
    }
    return sign(bits) | cut(size, 0xfff + (size >> 13 & 1));
  }
  /// Adds random bits below the cut; of a subnormal code, u to the value in units of 2^-24.
  static constexpr std::uint32_t stochastic(float x, float, std::uint32_t word) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), size = bits & 0x7fffffff;
    if (size < kSmallestNormalBits) {
      const float steps = std::bit_cast<float>(size) * 0x1p24f + unit(word);
      return sign(bits) | static_cast<std::uint32_t>(steps);
    }
    return sign(bits) | cut(size, word >> 19);
  }
  /// 2^112 moves the exponent to float32's, of subnormals too. Codes that are not finite, which are
  /// never written, decode to finite numbers from 65536.
  static constexpr float decode(std::uint32_t code, float) {
    return std::bit_cast<float>((code & 0x8000) << 16 | (code & 0x7fff) << 13) * 0x1p112f;
  }

 private:
  static constexpr std::uint32_t sign(std::uint32_t bits) { return bits >> 31 << 15; }
  static constexpr std::uint32_t cut(std::uint32_t size, std::uint32_t raise) {
    const std::uint32_t code = ((size + raise) >> 13) - kRebias;
    return code < kLargestCode ? code : kLargestCode;
  }
};

/// A scale that maps max |x| to kLevels. The quotient's factor is a little below 1 / kLevels, so
/// that kLevels * scale never overflows; |x * inverse| exceeds kLevels by less than 2^-20 of it.
/// Where the scale would be subnormal it is 0 and everything stays in the error.
template <std::uint32_t kLevels>
struct LargestMagnitude {
  static constexpr float kFactor = 0x1.fffffcp-1f / static_cast<float>(kLevels);
  static constexpr float kLargestScale = kLargest * kFactor;
  static_assert(kLargestScale * static_cast<float>(kLevels) <= kLargest);

  static constexpr float scale_of(float largest) {
    const float scale = largest * kFactor;
    return scale < kSmallestNormal ? 0 : scale;
  }
  static constexpr float scale(std::span<const float> x) { return scale_of(largest_magnitude(x)); }
  static constexpr float inverse(float scale) { return scale > 0 ? 1 / scale : 0; }
};

/// Integers from -kLevels to kLevels times the scale.
template <std::uint32_t kLevels>
struct Levels : LargestMagnitude<kLevels> {
  static constexpr float kLargestLevel = static_cast<float>(kLevels);

  static constexpr float nearest_level(float x, float inverse) {
    return round_to_nearest(x * inverse);
  }
  static constexpr float stochastic_level(float x, float inverse, std::uint32_t word) {
    const float level = round_down(x * inverse + unit(word));
    if (level > kLargestLevel) return kLargestLevel;
    return level < -kLargestLevel ? -kLargestLevel : level;
  }
};

/// Two's complement; -128 is not a code.
struct Int8 : Levels<127> {
  static constexpr ValueCoding kLine{4, "int8", 256, true, 8, true};
  static constexpr std::uint64_t kInvalidCode = 0x80, kInvalidMask = 0xff;

  static constexpr std::uint32_t nearest(float x, float inverse) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(nearest_level(x, inverse))) & 0xff;
  }
  static constexpr std::uint32_t stochastic(float x, float inverse, std::uint32_t word) {
    const float level = stochastic_level(x, inverse, word);
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(level)) & 0xff;
  }
  static constexpr float decode(std::uint32_t code, float scale) {
    return static_cast<float>(static_cast<std::int8_t>(code)) * scale;
  }
};

/// Two's complement, two a byte, the first in the low half; -8 is not a code.
struct Int4 : Levels<7> {
  static constexpr ValueCoding kLine{5, "int4", 128, true, 4, true};
  static constexpr std::uint64_t kInvalidCode = 0x8, kInvalidMask = 0xf;

  static constexpr std::uint32_t nearest(float x, float inverse) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(nearest_level(x, inverse))) & 0xf;
  }
  static constexpr std::uint32_t stochastic(float x, float inverse, std::uint32_t word) {
    const float level = stochastic_level(x, inverse, word);
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(level)) & 0xf;
  }
  static constexpr float decode(std::uint32_t code, float scale) {
    return static_cast<float>(static_cast<std::int32_t>(code ^ 8) - 8) * scale;
  }
};

/// The mean of |x| with the sign of x, the first value in the lowest bit, 1 for negative.
struct Sign : Magnitudes {
  static constexpr ValueCoding kLine{6, "sign", 512, false, 1, false};
  static constexpr float kLargestScale = kLargest;
  static constexpr std::uint64_t kInvalidCode = kNone;

  static constexpr float scale_of_mean(float mean) { return mean; }
  static constexpr float scale(std::span<const float> x) { return mean_of<Sign>(x); }
  static constexpr float inverse(float) { return 0; }
  static constexpr std::uint32_t nearest(float x, float) {
    return std::bit_cast<std::uint32_t>(x) >> 31;
  }
  static constexpr std::uint32_t stochastic(float x, float, std::uint32_t) { return nearest(x, 0); }
  static constexpr float decode(std::uint32_t code, float scale) {
    return code != 0 ? -scale : scale;
  }
};

/// The mid-rise quantizer of 2 bits: 2 code + 1, which is -3, -1, 1 or 3, times the scale; codes in
/// two's complement, four a byte, the first in the lowest bits. The scale is 0.9 times the mean of
/// |x|: docs/convergence.md compares it with others. A value beyond 3 * scale is cut, so stochastic
/// rounding would be biased. Where the scale would be subnormal it is 0.
struct Int2 : Magnitudes {
  static constexpr ValueCoding kLine{7, "int2", 512, false, 2, false};
  static constexpr float kFactor = 0.9f;
  static constexpr float kLargestScale = kLargest / 3;
  static_assert(kLargestScale * 3 <= kLargest);
  static constexpr std::uint64_t kInvalidCode = kNone;

  static constexpr float scale_of_mean(float mean) {
    const float scale = mean * kFactor;
    if (scale < kSmallestNormal) return 0;
    return scale < kLargestScale ? scale : kLargestScale;
  }
  static constexpr float scale(std::span<const float> x) { return scale_of_mean(mean_of<Int2>(x)); }
  static constexpr float inverse(float scale) { return scale > 0 ? 1 / scale : 0; }
  static constexpr std::uint32_t nearest(float x, float inverse) {
    const float steps = x * inverse;
    if (std::bit_cast<std::uint32_t>(x) >> 31 != 0) return steps < -2 ? 2 : 3;
    return steps > 2 ? 1 : 0;
  }
  static constexpr std::uint32_t stochastic(float x, float inverse, std::uint32_t) {
    return nearest(x, inverse);
  }
  static constexpr float decode(std::uint32_t code, float scale) {
    return static_cast<float>(2 * static_cast<std::int32_t>(code ^ 2) - 3) * scale;
  }
};

/// E4M3 of "OCP 8-bit Floating Point Specification" (2023) with subnormals, times the scale, which
/// maps max |x| to its largest number, 448. Its NaNs, 0x7f and 0xff, are not codes; it has no
/// infinities.
struct Fp8 : LargestMagnitude<448> {
  static constexpr ValueCoding kLine{8, "fp8", 512, true, 8, true};
  static constexpr std::uint64_t kInvalidCode = 0x7f, kInvalidMask = 0x7f;
  static constexpr std::uint32_t kLargestCode = 0x7e;
  static constexpr std::uint32_t kSmallestNormalBits = 0x3c800000;  // of 2^-6 as float32
  static constexpr std::uint32_t kRebias = (127 - 7) << 3;

  static constexpr std::uint32_t nearest(float x, float inverse) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x * inverse), size = bits & 0x7fffffff;
    // Subnormal codes count 2^-9, and so does the fraction of a float32 in [2^14, 2^15).
    if (size < kSmallestNormalBits) {
      return sign(bits) |
             (std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0x1p14f) - 0x46800000u);
    }
    return sign(bits) | cut(size, 0x7ffff + (size >> 20 & 1));
  }
  /// Adds random bits below the cut; of a subnormal code, u to the value in units of 2^-9.
  static constexpr std::uint32_t stochastic(float x, float inverse, std::uint32_t word) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x * inverse), size = bits & 0x7fffffff;
    if (size < kSmallestNormalBits) {
      const float steps = std::bit_cast<float>(size) * 0x1p9f + unit(word);
      return sign(bits) | static_cast<std::uint32_t>(steps);
    }
    return sign(bits) | cut(size, word >> 12);
  }
  /// 2^120 moves the exponent to float32's, of subnormals too.
  static constexpr float decode(std::uint32_t code, float scale) {
    return std::bit_cast<float>((code & 0x80) << 24 | (code & 0x7f) << 20) * 0x1p120f * scale;
  }

 private:
  static constexpr std::uint32_t sign(std::uint32_t bits) { return bits >> 31 << 7; }
  static constexpr std::uint32_t cut(std::uint32_t size, std::uint32_t raise) {
    const std::uint32_t code = ((size + raise) >> 20) - kRebias;
    return code < kLargestCode ? code : kLargestCode;
  }
};

/// The mean of x, in the place of each: no codes. It has the sign of the values, which is to be
/// one. (Fang et al., RedSync, 2018.)
struct Mean {
  static constexpr ValueCoding kLine{9, "mean", 512, false, 0, false, true};
  static constexpr float kLargestScale = kLargest;
  static constexpr std::uint64_t kInvalidCode = kNone;

  static constexpr float addend(float x) { return x; }
  static constexpr float scale_of_mean(float mean) { return mean; }
  static constexpr float scale(std::span<const float> x) { return mean_of<Mean>(x); }
  static constexpr float inverse(float) { return 0; }
  static constexpr std::uint32_t nearest(float, float) { return 0; }
  static constexpr std::uint32_t stochastic(float, float, std::uint32_t) { return 0; }
  static constexpr float decode(std::uint32_t, float scale) { return scale; }
};

/// Whether a block can have the scale with these bits. As integers: NaN and infinities are larger
/// than all numbers, and so is whatever has a sign.
template <class Coding>
constexpr bool is_scale(std::uint32_t bits) {
  const std::uint32_t size = Coding::kLine.one_sign ? bits & 0x7fffffff : bits;
  return size <= std::bit_cast<std::uint32_t>(float{Coding::kLargestScale});
}

/// The table of codings, by id from 1.
using All = std::tuple<Float32, Bf16, Fp16, Int8, Int4, Sign, Int2, Fp8, Mean>;

}  // namespace values

/// Calls body(Coding{}) with the struct of a line of the table.
template <class Body>
void visit_coding(const ValueCoding& coding, const Body& body) {
  std::apply([&](auto... all) { ((all.kLine.id == coding.id ? body(all) : void()), ...); },
             values::All{});
}

}  // namespace winnow::kernels
