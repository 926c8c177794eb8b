// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <winnow/elements.hpp>

namespace winnow::tests {

/// Mixes the bits of a word (the finaliser of SplitMix64, Steele et al., 2014).
constexpr std::uint64_t scatter(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31);
}

/// A digest of words in their order, equal on every machine and independent of any library.
class BitsDigest {
 public:
  std::uint64_t value() const { return value_; }

  void add(std::uint64_t word) {
    // FNV-1a by words. Its product moves bits only upwards, so the shift brings the highest ones
    // down: otherwise two changes of sign would cancel each other.
    value_ = (value_ ^ word) * 0x100000001b3U;
    value_ ^= value_ >> 29;
  }

  /// Adds the number of bytes, then the bytes; zeros fill the last word.
  void add(std::span<const std::byte> bytes) {
    add(bytes.size());
    while (!bytes.empty()) {
      std::uint64_t word = 0;
      const std::size_t size = std::min(sizeof(word), bytes.size());
      std::memcpy(&word, bytes.data(), size);
      add(word);
      bytes = bytes.subspan(size);
    }
  }

  /// Adds numbers, with any NaN as one: a NaN's bits depend on the machine.
  void add(std::span<const float> numbers) {
    add(numbers.size());
    for (float number : numbers) {
      if (std::isnan(number)) number = std::numeric_limits<float>::quiet_NaN();
      std::uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof(bits));
      add(std::uint64_t{bits});
    }
  }

  /// Adds 16-bit elements, with any NaN as one; `infinity` is their infinity.
  void add_halves(std::span<const std::uint16_t> halves, std::uint16_t infinity) {
    add(halves.size());
    for (const std::uint16_t half : halves) {
      const bool is_nan = (half & 0x7fffU) > infinity;
      add(is_nan ? 0x7fffU : std::uint64_t{half});
    }
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace winnow::tests
