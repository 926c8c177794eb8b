// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic/philox.hpp"

#include <gtest/gtest.h>

#include <set>

namespace winnow::tests {
namespace {

using kernels::Philox;
using kernels::random_word;
using kernels::RandomKey;

/// The known answers that the authors of Philox publish with Random123.
TEST(Philox, GivesTheKnownAnswers) {
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox::words({0, 0, 0, 0}, {0, 0}),
            (Philox::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox::words({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Philox::Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox::words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Philox::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, AValueTakesAWordOfItsCounter) {
  const RandomKey name{.seed = 5, .call = 7, .rank = 11, .stage = 13};
  const std::uint64_t v = (std::uint64_t{3} << 34) + 4 * 17;
  const Philox::Words words = Philox::words({17, 3, 11, 13}, Philox::key(name));
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(random_word(name, v + i), words[i]);
}

TEST(Philox, TheKeyIsTheNextNumberOfSplitMix64) {
  // From state 0 the generator gives e220a8397b1dcdaf after its first step.
  EXPECT_EQ(Philox::key({.seed = 0, .call = 1}), (Philox::Key{0x7b1dcdaf, 0xe220a839}));
}

TEST(Philox, NumbersDifferBetweenSeedsCallsRanksAndStages) {
  std::set<std::uint32_t> seen;
  std::size_t drawn = 0;
  const auto draw = [&](const RandomKey& name) {
    for (std::uint64_t v = 0; v < 64; ++v, ++drawn) seen.insert(random_word(name, v));
  };
  draw({});
  for (std::uint32_t i = 1; i < 4; ++i) {
    draw({.seed = i});
    draw({.seed = std::uint64_t{i} << 32});
    draw({.call = i});
    draw({.call = std::uint64_t{i} << 32});
    draw({.rank = i});
    draw({.stage = i});
  }
  EXPECT_EQ(seen.size(), drawn);  // two equal by chance: about 1 in 6000 for other constants
}

}  // namespace
}  // namespace winnow::tests
