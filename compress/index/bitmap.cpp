// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#include "compress/index/index_coding.hpp"

namespace winnow::compress {

namespace {

/// One bit a position, in 64-bit words. The fewest bytes from a density of about 1/4 on.
std::optional<std::uint64_t> bytes(std::uint64_t count, std::uint64_t k) {
  if (count >> 32 != 0 || k > count) return std::nullopt;
  return (count + 63) / 64 * 8;
}

void encode(const Exec&, std::uint64_t, std::span<const std::uint32_t> index,
            std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  for (const std::uint32_t position : index) {
    out[position / 8] |= std::byte{1} << position % 8;
  }
}

bool decode(const Exec&, std::uint64_t count, std::span<const std::byte> in,
            std::span<std::uint32_t> index) {
  std::size_t found = 0;
  for (std::size_t at = 0; at < in.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, in.data() + at, 8);
    if (static_cast<std::size_t>(std::popcount(word)) > index.size() - found) return false;
    for (; word != 0; word &= word - 1) {
      index[found++] =
          static_cast<std::uint32_t>(8 * at + static_cast<std::size_t>(std::countr_zero(word)));
    }
  }
  return found == index.size() && (found == 0 || index[found - 1] < count);
}

}  // namespace

constinit const IndexCoding kBitmapCoding{
    .id = 3, .name = "bitmap", .bytes = bytes, .encode = encode, .decode = decode};

}  // namespace winnow::compress
