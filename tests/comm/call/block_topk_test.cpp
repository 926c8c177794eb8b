// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Selection in blocks: as if each block were a parameter of its own.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kCount = 5 * kBlock + 100;

Options options_of(const std::string& compressor, const char* schedule, std::uint64_t min_bytes) {
  return {.compressor = compressor,
          .schedule = schedule,
          .links = kGivenLinks,
          .trial_calls = 0,
          .min_bytes = min_bytes,
          .deadline = 60};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Case {
  const char* coding;
  const char* schedule;
};

class BlocksOf : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Ways, BlocksOf,
                         testing::Values(Case{"", "gather"}, Case{",int8", "balanced"},
                                         Case{"", "doubling"}, Case{",int4", "shared"},
                                         Case{"", "two_level:balanced"}),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

TEST_P(BlocksOf, AreLikeParameters) {
  const auto& [coding, schedule] = GetParam();
  run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
    const auto run = [&](bool in_blocks) {
      const std::string selection = in_blocks ? "blocktopk:16/512" : "topk:0.03125";
      Reducer reducer(transport, options_of(selection + coding, schedule, 0));
      std::vector<float> seen;
      std::vector<Segment> bucket;
      for (int step = 0; step < 4; ++step) {
        std::vector<float> gradient =
            make_gradient(Kind::heavy_tailed, kCount, transport->rank(), step, 1);
        bucket.clear();
        for (std::size_t at = 0; at < kCount; at += in_blocks ? kCount : kBlock) {
          const std::size_t size = in_blocks ? kCount : std::min(kBlock, kCount - at);
          bucket.push_back({.elements = std::span(gradient).subspan(at, size), .id = 1 + at});
        }
        reducer.all_reduce(bucket);
        seen.insert(seen.end(), gradient.begin(), gradient.end());
      }
      for (const Segment& segment : bucket) {
        const auto residual = reducer.residual(segment.id);
        seen.insert(seen.end(), residual.begin(), residual.end());
      }
      return seen;
    };
    EXPECT_TRUE(same_bits(run(true), run(false)));
  });
}

// A parameter whose first calls travel dense is cut all the same.
TEST(Blocks, BeginWithTheFirstCall) {
  for (const int ranks : rank_counts()) {
    if (ranks == 1) continue;
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      Reducer reducer(transport, options_of("blocktopk:1/64", "gather", 4 * 1000));
      std::vector<float> some(900), more(900);
      reducer.all_reduce(some, 1);
      EXPECT_EQ(reducer.last().schedule, "dense");
      for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<float>(i);
      const Segment both[] = {{.elements = some, .id = 1}, {.elements = more, .id = 2}};
      reducer.all_reduce(both);
      for (std::size_t i = 0; i < some.size(); ++i) {
        const bool sent = i % 64 == 63 || i + 1 == some.size();
        EXPECT_EQ(some[i] != 0, sent) << i;
      }
    });
  }
}

TEST(Blocks, HaveOneName) {
  const auto name = [](const std::string& text) {
    return Options::parse("compressor=" + text).compressor;
  };
  EXPECT_EQ(name("blocktopk:064/4096,int8"), "blocktopk:64/4096,int8");
  EXPECT_EQ(name("blocktopk:64/64,int8"), "blocktopk:64/64,int8");
  for (const char* wrong : {"blocktopk", "blocktopk:64", "blocktopk:64/", "blocktopk:/64",
                            "blocktopk:0/64", "blocktopk:65/64", "blocktopk:1/100",
                            "blocktopk:1/33554432", "blocktopk:1/64/64", "blocktopk:-1/64"}) {
    EXPECT_THROW(name(wrong), UsageError) << wrong;
  }
}

}  // namespace
}  // namespace winnow::tests
