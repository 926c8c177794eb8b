// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/nearest.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace winnow {
namespace {

TEST(NearestWord, HasFewestEdits) {
  constexpr std::string_view kKnown[] = {"none", "topk", "blocktopk", "threshold", "randomk"};
  EXPECT_EQ(nearest_word("topk", kKnown), "topk");
  EXPECT_EQ(nearest_word("topq", kKnown), "topk");
  EXPECT_EQ(nearest_word("tresholt", kKnown), "threshold");
  EXPECT_EQ(nearest_word("blocktop", kKnown), "blocktopk");
  EXPECT_EQ(nearest_word("random", kKnown), "randomk");
  EXPECT_EQ(nearest_word("thr", kKnown), "threshold");  // which no other word begins with
  EXPECT_EQ(nearest_word("topk", {}), "");
}

TEST(NearestWord, SwappedCharactersAreOneEdit) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("tokp", "topk"), 1U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
  EXPECT_EQ(edit_distance("abcd", "badc"), 2U);
}

TEST(NearestWord, IsNoneWhereNoneIsNear) {
  constexpr std::string_view kKnown[] = {"none", "topk", "0"};
  for (const char* word : {"", "2", "xxxx", "unknown", "tk"}) {
    EXPECT_EQ(nearest_word(word, kKnown), "") << word;
    EXPECT_EQ(advice(word, kKnown), "known are none, topk, 0") << word;
  }
  EXPECT_EQ(advice("tok", kKnown), "did you mean 'topk'?");
}

TEST(NearestWord, OfOtherLengthIsNotCompared) {
  constexpr std::string_view kKnown[] = {"topk", "none", "threshold"};
  const std::string long_word(8'000'000, 'x');  // which comparing would take long
  EXPECT_EQ(nearest_word(long_word, kKnown), "");
  EXPECT_EQ(nearest_word("threshld", kKnown), "threshold");
  // Both are three edits away. Half of a word is not near, whatever it is.
  constexpr std::string_view kTwo[] = {"abc", "xyzabcdef"};
  EXPECT_EQ(nearest_word("abcdef", kTwo), "xyzabcdef");
}

}  // namespace
}  // namespace winnow
