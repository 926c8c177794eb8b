// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <winnow/reduce_op.hpp>

namespace winnow::kernels {

// The arithmetic of a reduction on one element of two ranks, for all bodies. Every operation is
// commutative, and but for float sums and products associative too, to the bit.

/// Integers wrap: modulo 2^bits.
template <class T>
constexpr T sum_of(T a, T b) {
  if constexpr (std::integral<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

/// Integers wrap: modulo 2^bits.
template <class T>
constexpr T product_of(T a, T b) {
  if constexpr (std::integral<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  } else {
    return a * b;
  }
}

template <std::floating_point T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <std::floating_point T>
inline constexpr BitsOf<T> kSignBit = std::bit_cast<BitsOf<T>>(-T{0});

template <std::floating_point T>
constexpr bool is_nan(T x) {
  constexpr auto kInfinity = std::bit_cast<BitsOf<T>>(std::numeric_limits<T>::infinity());
  return (std::bit_cast<BitsOf<T>>(x) & ~kSignBit<T>) > kInfinity;
}

/// IEEE 754-2019 minimum: one NaN for any, and -0 below 0.
template <class T>
constexpr T minimum_of(T a, T b) {
  if constexpr (std::floating_point<T>) {
    // Equal numbers differ in nothing but the sign of a zero.
    const T equal = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) | std::bit_cast<BitsOf<T>>(b));
    const T smaller = a < b ? a : b;
    const T number = a == b ? equal : smaller;
    return a < b || a >= b ? number : std::numeric_limits<T>::quiet_NaN();
  } else {
    return a < b ? a : b;
  }
}

/// IEEE 754-2019 maximum: one NaN for any, and 0 above -0.
template <class T>
constexpr T maximum_of(T a, T b) {
  if constexpr (std::floating_point<T>) {
    const T equal = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) & std::bit_cast<BitsOf<T>>(b));
    const T larger = a < b ? b : a;
    const T number = a == b ? equal : larger;
    return a < b || a >= b ? number : std::numeric_limits<T>::quiet_NaN();
  } else {
    return a < b ? b : a;
  }
}

// Floats as unsigned integers whose minimum and maximum are those above, for libraries that have
// none of floats which are. Numbers with a sign have all bits inverted, others the sign alone:
// -infinity becomes 0x007fffff, -0 0x7fffffff, 0 0x80000000 and infinity 0xff800000. That leaves
// both ends to NaN: the one that wins stands for it.

template <std::floating_point T>
constexpr BitsOf<T> ordered_of(T x, ReduceOp op) {
  if (is_nan(x)) return op == ReduceOp::minimum ? BitsOf<T>{0} : ~BitsOf<T>{0};
  const auto bits = std::bit_cast<BitsOf<T>>(x);
  return (bits & kSignBit<T>) != 0 ? ~bits : bits | kSignBit<T>;
}

/// Back, of either operation: one NaN for any.
template <std::floating_point T>
constexpr T float_of(BitsOf<T> ordered) {
  const T x = std::bit_cast<T>((ordered & kSignBit<T>) != 0 ? ordered ^ kSignBit<T> : ~ordered);
  return is_nan(x) ? std::numeric_limits<T>::quiet_NaN() : x;
}

/// The average of what `ranks` ranks summed up: one rounding, of integers towards zero.
template <class T>
constexpr T average_of(T sum, int ranks) {
  if constexpr (std::floating_point<T>) {
    return sum * (T{1} / static_cast<T>(ranks));
  } else {
    using Wide = std::conditional_t<std::signed_integral<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(ranks));
  }
}

}  // namespace winnow::kernels
