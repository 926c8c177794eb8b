// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/nearest.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace winnow::compress {
namespace {

TEST(NearestWord, HasFewestEdits) {
  constexpr std::string_view kKnown[] = {"none", "topk", "blocktopk", "threshold", "randomk"};
  EXPECT_EQ(nearest_word("topk", kKnown), "topk");
  EXPECT_EQ(nearest_word("topq", kKnown), "topk");
  EXPECT_EQ(nearest_word("tresholt", kKnown), "threshold");
  EXPECT_EQ(nearest_word("blocktop", kKnown), "blocktopk");
  EXPECT_EQ(nearest_word("random", kKnown), "randomk");
  EXPECT_EQ(nearest_word("", kKnown), "none");
  EXPECT_EQ(nearest_word("xxxx", kKnown), "none");  // the first among equals
  EXPECT_EQ(nearest_word("topk", {}), "");
}

}  // namespace
}  // namespace winnow::compress
