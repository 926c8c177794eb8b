// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/state/crc64.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace winnow::comm {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kSlices = 16;
/// Primitive, lowest power first: x^n + 1 has no such factor below n = 2^64 - 1. (That of ECMA-182
/// has small ones: it misses flips that are 1 GiB apart.)
constexpr std::uint64_t kPolynomial = 0x9a6c9329ac4bc9b5;

using Tables = std::array<std::array<std::uint64_t, 256>, kSlices>;

/// tables[s][b] is the remainder of byte b with s zero bytes behind it.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint64_t byte = 0; byte < 256; ++byte) {
    std::uint64_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ ((rest & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = rest;
  }
  for (std::size_t s = 1; s < kSlices; ++s) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint64_t rest = tables[s - 1][byte];
      tables[s][byte] = rest >> 8 ^ tables[0][rest & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

/// The remainder of a word's bytes. `behind`: the number of bytes behind the word.
std::uint64_t slice(std::uint64_t word, std::size_t behind) {
  std::uint64_t rest = 0;
  for (std::size_t byte = 0; byte < 8; ++byte, word >>= 8) {
    rest ^= kTables[behind + 7 - byte][word & 0xff];
  }
  return rest;
}

}  // namespace

/// Slicing-by-16 (Kounavis and Berry, 2005): look-ups of one step do not wait for one another.
std::uint64_t crc64(std::span<const std::byte> bytes) {
  std::uint64_t rest = ~std::uint64_t{0};
  while (bytes.size() >= kSlices) {
    std::array<std::uint64_t, 2> words;
    std::memcpy(words.data(), bytes.data(), kSlices);
    rest = slice(words[0] ^ rest, 8) ^ slice(words[1], 0);
    bytes = bytes.subspan(kSlices);
  }
  for (const std::byte byte : bytes) {
    rest = rest >> 8 ^ kTables[0][(rest ^ std::to_integer<std::uint64_t>(byte)) & 0xff];
  }
  return ~rest;
}

}  // namespace winnow::comm
