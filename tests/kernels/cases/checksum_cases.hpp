// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "lab/reference/place.hpp"
#include "tests/kernels/answers.hpp"

namespace winnow::tests {

/// The range of a message in memory.
struct SummedPart {
  std::size_t at, bytes;
  std::span<const std::byte> of(std::span<const std::uint64_t> memory) const {
    return std::as_bytes(memory).subspan(at, bytes);
  }
};

using ChecksumsBody = std::function<std::vector<std::uint64_t>(
    std::span<const std::uint64_t> memory, std::span<const SummedPart> parts)>;

/// Messages of different sizes, up to several steps of a grid. Some are empty; some end with half a
/// word. There are more of them than one launch takes.
inline void expect_lists_of_checksums_equal_reference(const ChecksumsBody& body) {
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> memory(3000);
  for (std::uint64_t& word : memory) word = random();
  for (const std::size_t count : {0U, 1U, 2U, 31U, 33U, 300U}) {
    std::vector<SummedPart> parts;
    std::vector<std::uint64_t> expected;
    for (std::size_t m = 0; m < count; ++m) {
      const std::size_t words = m % 7 == 3 ? 0 : 5 * m % 97 + (m % 50 == 1 ? 5001 : 0);
      parts.push_back({8 * m, 4 * words});
      expected.push_back(checksum_of({.place = lab::kReference}, parts.back().of(memory)));
    }
    EXPECT_EQ(body(memory, parts), expected);
  }
}

}  // namespace winnow::tests
