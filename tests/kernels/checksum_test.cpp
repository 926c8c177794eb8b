// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/checksum.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "tests/kernels/answers.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::kernels {
namespace {

using namespace tests;

constexpr Exec kReference{.place = Place::reference};

TEST(Checksum, EqualsReference) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> words((1 << 21) + 8);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  words[3] = 0xffffffff;
  for_each_target([&] {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{33},
          std::size_t{4095}, std::size_t{4097}, words.size() - 2}) {
      for (const std::size_t first : {0u, 2u}) {  // off the alignment of vectors
        const auto bytes = std::as_bytes(std::span(words).subspan(first, count));
        const std::uint64_t expected = checksum_of(kReference, bytes);
        for (const int threads : {1, 2, 3}) {
          EXPECT_EQ(checksum_of(Exec{.threads = threads}, bytes), expected)
              << count << " words, threads " << threads;
        }
      }
    }
  });
}

TEST(Checksum, IsTheDeclaredFormula) {
  const std::uint32_t words[] = {5, 0, 0xffffffff, 7};
  const std::uint64_t expected = 5 + 0xffffffffull * 5 + 7 * 7;
  for (const Place place : {Place::reference, Place::cpu}) {
    EXPECT_EQ(checksum_of(Exec{.place = place}, std::as_bytes(std::span(words))), expected);
    EXPECT_THROW(checksum_of(Exec{.place = place}, std::as_bytes(std::span(words)).first(6)),
                 UsageError);
  }
}

TEST(Checksum, ChangesWithEveryBitAndEveryExchange) {
  std::vector<std::uint32_t> words(150);
  std::mt19937 random(2);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  const auto sum = [&] { return checksum_of(Exec{}, std::as_bytes(std::span(words))); };
  const std::uint64_t before = sum();
  for (std::size_t bit = 0; bit < 32 * words.size(); ++bit) {
    words[bit / 32] ^= 1u << (bit % 32);
    EXPECT_NE(sum(), before);
    words[bit / 32] ^= 1u << (bit % 32);
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::swap(words[0], words[i]);
    EXPECT_NE(sum(), before);
    std::swap(words[0], words[i]);
  }
}

}  // namespace
}  // namespace winnow::kernels
