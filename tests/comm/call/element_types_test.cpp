// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// 16-bit gradients: sums, residuals and rounded results equal those of a float32 gradient of the
// same numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/half.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::uint64_t kCounts[] = {5000, 300, 2000};

struct Case {
  ElementType type;
  const char* compressor;
  const char* schedule;
};

class Halves : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(GatherTypes, Halves,
                         testing::Values(Case{ElementType::bf16, "topk:0.02", "gather"},
                                         Case{ElementType::bf16, "none", "dense"},
                                         Case{ElementType::fp16, "int4", "gather"},
                                         Case{ElementType::fp16, "threshold:2", "gather"}));
INSTANTIATE_TEST_SUITE_P(Types, Halves,
                         testing::Values(Case{ElementType::fp16, "topk:0.02,int8", "balanced"},
                                         Case{ElementType::bf16, "topk:0.02", "doubling"},
                                         Case{ElementType::bf16, "none", "least_bytes"},
                                         Case{ElementType::fp16, "int4", "least_bytes"},
                                         Case{ElementType::fp16, "none", "balanced"},
                                         Case{ElementType::bf16, "int8", "balanced"},
                                         Case{ElementType::bf16, "sign", "shared"},
                                         Case{ElementType::bf16, "randomk:0.02", "balanced"},
                                         Case{ElementType::fp16, "topk:0.02,sign", "balanced"},
                                         Case{ElementType::fp16, "topk:0.02", "shared"},
                                         Case{ElementType::bf16, "blocktopk:8/256", "gather"},
                                         Case{ElementType::bf16, "topk:0.02", "two_level"}),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

std::vector<std::uint16_t> rounded(ElementType type, const std::vector<float>& values) {
  std::vector<std::uint16_t> halves(values.size());
  kernels::narrow({}, type, values, halves);
  return halves;
}

std::vector<float> widened(ElementType type, const std::vector<std::uint16_t>& halves) {
  std::vector<float> values(halves.size());
  kernels::widen({}, type, halves, values);
  return values;
}

// A bucket of 16-bit elements with one float32 bias, against the same bucket in float32; in one
// step a rate applies to some of it.
TEST_P(Halves, EqualFloatsRoundedOnce) {
  const Case c = GetParam();
  const ElementType type = c.type;
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      const int rank = transports[0]->rank();
      const Options options{
          .compressor = c.compressor, .schedule = c.schedule, .links = kGivenLinks, .min_bytes = 0};
      Reducer halves(transports[0], options), floats(transports[1], options);
      for (int step = 0; step < 3; ++step) {
        std::vector<std::vector<std::uint16_t>> half;
        std::vector<std::vector<float>> wide;
        for (std::uint64_t id = 0; id < 3; ++id) {
          half.push_back(rounded(type, make_gradient(Kind::normal, kCounts[id], rank, step, id)));
          wide.push_back(widened(type, half.back()));
        }
        std::vector<float> bias = wide[1];
        const float rate = step == 1 ? 0.5F : 1;
        const Segment of_halves[] = {
            {.elements = {half[0].data(), half[0].size(), type}, .id = 0},
            {.elements = bias, .id = 1, .dimensions = 1},
            {.elements = {half[2].data(), half[2].size(), type}, .id = 2, .rate = rate}};
        const Segment of_floats[] = {{.elements = wide[0], .id = 0},
                                     {.elements = wide[1], .id = 1, .dimensions = 1},
                                     {.elements = wide[2], .id = 2, .rate = rate}};
        halves.all_reduce(of_halves);
        floats.all_reduce(of_floats);
        EXPECT_EQ(half[0], rounded(type, wide[0]));
        EXPECT_EQ(half[2], rounded(type, wide[2]));
        EXPECT_TRUE(same_bits(bias, wide[1]));
        EXPECT_TRUE(same_bits(halves.residual(0), floats.residual(0)));
      }
    });
  }
}

TEST(HalvesUsage, TypesThatDifferAreAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1) return;
      Reducer reducer(transport,
                      {.compressor = "topk:0.1", .schedule = "least_bytes", .min_bytes = 0});
      std::vector<std::uint16_t> halves(1000, 0x3c00);
      const auto type = transport->rank() == 0 ? ElementType::bf16 : ElementType::fp16;
      EXPECT_THROW(reducer.all_reduce({halves.data(), halves.size(), type}, 0), UsageError);
      EXPECT_EQ(halves, std::vector<std::uint16_t>(1000, 0x3c00));
    });
  }
}

}  // namespace
}  // namespace winnow::tests
