// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace winnow::kernels {

/// Elias-Fano coding (Elias 1974, Fano 1971). With l low bits:
///   low part   k * l bits, the low l bits of each index, packed little-endian
///   high part  bit (index[i] >> l) + i is set, for each i; k + (count >> l) + 1 bits
/// Each part is padded by itself. l is the least number below 32 that minimises the total, so that
/// it is, as the size, a function of (count, k) alone.
struct EliasFanoShape {
  std::uint32_t low_bits;
  std::size_t low_bytes, high_bytes;
  constexpr std::size_t bytes() const { return low_bytes + high_bytes; }
};

/// For k <= count <= 2^32.
constexpr EliasFanoShape eliasfano_shape(std::uint64_t count, std::uint64_t k) {
  constexpr std::uint32_t kMostBits = 31;
  constexpr std::uint64_t kPadding = 2 * 63;  // bits that the two parts have at most
  const auto bits = [&](std::uint32_t l) { return k * l + k + (count >> l) + 1; };
  const auto part_bytes = [](std::uint64_t of_part) { return (of_part + 63) / 64 * 8; };
  const auto shape = [&](std::uint32_t l) {
    return EliasFanoShape{l, part_bytes(k * l), part_bytes(k + (count >> l) + 1)};
  };
  // `bits` is convex in l, and least where one more low bit no longer halves the high part by more
  // than k. The shortest with padding is within kPadding of that.
  const auto width = [](std::uint64_t number) {
    return static_cast<std::uint32_t>(std::bit_width(number));
  };
  std::uint32_t least = std::min(kMostBits, width(count) - std::min(width(2 * k), width(count)));
  if (count >> least > 2 * k && least < kMostBits) ++least;
  std::uint32_t first = least, last = least;
  while (first > 0 && bits(first - 1) <= bits(least) + kPadding) --first;
  while (last < kMostBits && bits(last + 1) <= bits(least) + kPadding) ++last;
  EliasFanoShape best = shape(first);
  for (std::uint32_t l = first + 1; l <= last; ++l) {
    if (shape(l).bytes() < best.bytes()) best = shape(l);
  }
  return best;
}

}  // namespace winnow::kernels
