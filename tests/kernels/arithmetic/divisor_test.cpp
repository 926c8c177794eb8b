// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic/divisor.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace winnow::tests {
namespace {

using kernels::Divisor;

/// Values at which a quotient changes, and the largest ones.
TEST(Divisor, DividesAsTheLanguageDoes) {
  std::mt19937_64 random(7);
  std::uint64_t wrong = 0;
  for (int shift = 0; shift < 32; ++shift) {
    for (int i = 0; i < 40; ++i) {
      const auto number = static_cast<std::uint32_t>(i == 0   ? 1U << shift
                                                     : i == 1 ? ~0U >> shift
                                                              : (random() >> 32 >> shift) | 1);
      const Divisor divisor(number);
      const auto check = [&](std::uint64_t value) {
        const auto [quotient, remainder] = divisor.of(value);
        wrong += quotient != value / number || remainder != value % number;
        wrong += value / divisor != value / number;
      };
      for (int k = 0; k < 64; ++k) {
        const std::uint64_t multiple = (random() >> k) / number * number;
        for (const std::uint64_t value : {multiple, multiple - 1, multiple + number - 1}) {
          check(value);
        }
        check(~std::uint64_t{0} - static_cast<std::uint64_t>(k));
      }
      EXPECT_EQ(divisor.number(), number);
    }
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace winnow::tests
