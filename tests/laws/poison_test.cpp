// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 7: a non-finite element anywhere makes the whole bucket NaN on every rank, once; nothing of
// it stays, and no finite element is lost.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compress/compressor.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<Parameter> kParameters = {{1, 5000}, {2, 300, 1}, {3, 2000}};

struct Case {
  float bad;
  std::size_t parameter, position;
  const char* schedule = "gather";
  const char* compressor = "topk:0.02";
  std::uint64_t max_part = Options::kMaxPart;
};

class Poison : public testing::TestWithParam<Case> {};

TEST_P(Poison, PassesAndDoesNotStay) {
  const Case bad = GetParam();
  const bool in_exempt = kParameters[bad.parameter].dimensions == 1;
  run_worlds(bad.schedule, [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    const int culprit = transport->size() - 1;
    Reducer reducer(transport, {.compressor = bad.compressor,
                                .schedule = bad.schedule,
                                .min_bytes = 0,
                                .max_part = bad.max_part});
    const compress::Codings codings = compress::make_compressor(bad.compressor)->codings();
    const bool codes_zero = codings.value.coding->has_zero;
    TestBucket bucket(kParameters);
    bucket.fill(Kind::normal, rank, 0);
    reducer.all_reduce(bucket.segments());
    std::vector<std::vector<float>> before;
    for (const Parameter& p : kParameters) {
      const auto residual = reducer.residual(p.id);
      before.emplace_back(residual.begin(), residual.end());
      before.back().resize(p.count);
    }

    bucket.fill(Kind::normal, rank, 1);
    if (rank == culprit) bucket.values()[bad.parameter][bad.position] = bad.bad;
    const auto gradient = bucket.values();
    reducer.all_reduce(bucket.segments());
    EXPECT_EQ(reducer.last().poisoned, 1U);
    for (std::size_t p = 0; p < kParameters.size(); ++p) {
      for (const float value : bucket.values()[p]) EXPECT_TRUE(std::isnan(value));
      const auto residual = reducer.residual(kParameters[p].id);
      ASSERT_EQ(residual.size(), kParameters[p].count);
      for (std::size_t i = 0; i < residual.size(); ++i) {
        const float acc = gradient[p][i] + before[p][i];
        const float kept = std::isfinite(acc) ? acc : before[p][i];
        // Put-back adds what a lossy coding missed to what it sent; each addition rounds once.
        const bool exact = codings.exact() || (codes_zero && !std::isfinite(acc));
        const float rounding = exact ? 0 : 1e-6F;
        EXPECT_NEAR(residual[i], kept, rounding) << "parameter " << p << " position " << i;
      }
    }

    // The next call is as if the bad element had never been: everything comes out in the end.
    bucket.fill(Kind::all_zero, rank, 2);
    reducer.all_reduce(bucket.segments());
    EXPECT_EQ(reducer.last().poisoned, 0U);
    for (const auto& values : bucket.values()) {
      for (const float value : values) EXPECT_TRUE(std::isfinite(value));
    }
    if (in_exempt) {
      for (const float left : reducer.residual(2)) EXPECT_EQ(left, 0.0F);
    }
  });
}

// The bad element is in the first of many parts with others under way, in a middle one, or in the
// last.
INSTANTIATE_TEST_SUITE_P(LawsGather, Poison,
                         testing::Values(Case{kNaN, 0, 0}, Case{kInf, 0, 4999}, Case{-kInf, 2, 7},
                                         Case{kNaN, 1, 0}, Case{kInf, 1, 299},
                                         Case{kNaN, 0, 70, "gather", "int8"},
                                         Case{kNaN, 0, 5, "gather", "topk:0.02", 700}));
INSTANTIATE_TEST_SUITE_P(
    LawsBalanced, Poison,
    testing::Values(Case{kNaN, 0, 0, "balanced"}, Case{kInf, 0, 4999, "balanced"},
                    Case{-kInf, 0, 64, "balanced"}, Case{kNaN, 2, 7, "balanced"},
                    Case{kInf, 1, 299, "balanced"}, Case{kInf, 0, 130, "balanced", "int8"},
                    Case{kNaN, 2, 1999, "balanced", "topk:0.02,int4"},
                    Case{kNaN, 0, 5, "balanced", "topk:0.02", 700},
                    Case{kInf, 0, 2500, "balanced", "int8", 700},
                    Case{kInf, 2, 1990, "balanced", "topk:0.02", 700}));
INSTANTIATE_TEST_SUITE_P(LawsDoubling, Poison,
                         testing::Values(Case{kNaN, 0, 0, "doubling"},
                                         Case{kInf, 2, 1999, "doubling", "int8"},
                                         Case{-kInf, 1, 3, "doubling", "topk:0.4,int4"},
                                         Case{kNaN, 0, 5, "doubling", "topk:0.02", 700},
                                         Case{kNaN, 2, 1999, "two_level:doubling"}));
INSTANTIATE_TEST_SUITE_P(LawsThreshold, Poison,
                         testing::Values(Case{kNaN, 0, 4, "gather", "threshold"},
                                         Case{kInf, 2, 7, "doubling", "threshold:1"},
                                         Case{-kInf, 0, 70, "balanced", "threshold:0.5"},
                                         Case{kNaN, 0, 3, "balanced", "threshold,int8"}));
// Most bad elements are not drawn in the call.
INSTANTIATE_TEST_SUITE_P(LawsRandomK, Poison,
                         testing::Values(Case{kNaN, 0, 4, "gather", "randomk:0.02"},
                                         Case{kInf, 2, 7, "doubling", "randomk:0.3"},
                                         Case{-kInf, 0, 70, "balanced", "randomk:0.3"},
                                         Case{kNaN, 0, 3, "balanced", "randomk:0.3,int8", 700},
                                         Case{kInf, 2, 1999, "shared", "randomk:0.02,int4"},
                                         Case{kNaN, 0, 5, "two_level:balanced",
                                              "randomk:0.02,sign"}));
INSTANTIATE_TEST_SUITE_P(
    LawsTwoLevel, Poison,
    testing::Values(Case{kNaN, 0, 0, "two_level:gather"}, Case{kInf, 1, 299, "two_level:gather"},
                    Case{kInf, 0, 4999, "two_level:balanced"},
                    Case{-kInf, 2, 7, "two_level:balanced", "int8"},
                    Case{kNaN, 0, 5, "two_level:balanced", "topk:0.02,int4", 700},
                    Case{kInf, 2, 1990, "two_level:gather", "topk:0.02", 700}));

// Supports carry shared's poison; the cases of 700 have other parts under way.
INSTANTIATE_TEST_SUITE_P(LawsShared, Poison,
                         testing::Values(Case{kNaN, 0, 0, "shared"}, Case{-kInf, 1, 7, "shared"},
                                         Case{kInf, 2, 1999, "shared", "topk:0.02,int4"},
                                         Case{kNaN, 0, 64, "shared", "int8"},
                                         Case{kNaN, 0, 5, "shared", "topk:0.02", 700},
                                         Case{kInf, 0, 2500, "shared", "topk:0.02,int8", 700},
                                         Case{kNaN, 0, 0, "two_level:shared"},
                                         Case{kInf, 2, 1999, "two_level:shared", "topk:0.02,int4"},
                                         Case{-kInf, 1, 7, "two_level:shared", "int8"},
                                         Case{kNaN, 0, 5, "two_level:shared", "topk:0.02", 700}));

// Each value coding codes 0 at a bad position. Those of sign, int2 and mean do not decode to 0, and
// nothing of it may stay either.
INSTANTIATE_TEST_SUITE_P(
    LawsCoding, Poison,
    testing::Values(
        Case{kNaN, 0, 70, "gather", "bf16"}, Case{kInf, 0, 70, "gather", "fp16"},
        Case{-kInf, 2, 7, "gather", "int4"}, Case{kNaN, 0, 70, "gather", "sign"},
        Case{kInf, 0, 130, "balanced", "int2"}, Case{kNaN, 2, 7, "shared", "topk:0.02,int2"},
        Case{kNaN, 0, 70, "gather", "fp8"}, Case{kInf, 2, 1999, "gather", "topk:1,sign"},
        Case{kNaN, 0, 70, "gather", "topk:0.02,mean"},
        Case{-kInf, 1, 3, "doubling", "topk:0.4,mean"}, Case{kInf, 0, 130, "balanced", "bf16"},
        Case{kNaN, 2, 7, "balanced", "fp16"}, Case{-kInf, 0, 64, "balanced", "sign"},
        Case{kNaN, 2, 1999, "balanced", "topk:0.02,sign", 700},
        Case{kInf, 2, 1999, "doubling", "sign"}, Case{kNaN, 1, 3, "doubling", "topk:0.4,sign"},
        Case{kInf, 0, 2500, "shared", "sign"}, Case{kNaN, 0, 64, "shared", "topk:0.02,sign"},
        Case{kNaN, 0, 3, "two_level:balanced", "sign"},
        Case{kInf, 2, 7, "two_level:shared", "topk:1,sign"}));

class PoisonOfSums : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(LawsGather, PoisonOfSums, testing::Values("gather"));
INSTANTIATE_TEST_SUITE_P(LawsBalanced, PoisonOfSums, testing::Values("balanced"));
INSTANTIATE_TEST_SUITE_P(Laws, PoisonOfSums,
                         testing::Values("doubling", "shared", "two_level:gather",
                                         "two_level:doubling", "two_level:balanced",
                                         "two_level:shared"));

TEST_P(PoisonOfSums, AnOverflowingSumIsRestored) {
  run_worlds(GetParam(), [&](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(
        transport,
        {.compressor = "topk:0.01", .schedule = GetParam(), .op = ReduceOp::sum, .min_bytes = 0});
    std::vector<float> gradient(1000, 0.25F);
    gradient[500] = std::numeric_limits<float>::max();
    const auto acc = gradient;
    reducer.all_reduce(gradient, 0);
    const bool overflows = transport->size() > 1;
    EXPECT_EQ(reducer.last().poisoned, overflows ? 1U : 0U);
    if (!overflows) return;
    for (const float value : gradient) EXPECT_TRUE(std::isnan(value));
    EXPECT_TRUE(same_bits(reducer.residual(0), acc));
  });
}

// A sum that overflows in the compressed part puts back the exempt one, too, with its residual.
TEST_P(PoisonOfSums, AnOverflowKeepsWhatExemptParametersHad) {
  const std::vector<Parameter> parameters = {{1, 1000}, {2, 50, 1}};
  run_worlds(GetParam(), [&](const std::shared_ptr<Transport>& transport) {
    if (transport->size() == 1) return;
    Reducer reducer(
        transport,
        {.compressor = "topk:0.01", .schedule = GetParam(), .op = ReduceOp::sum, .min_bytes = 0});
    TestBucket bucket(parameters);
    for (const float bad : {kNaN, std::numeric_limits<float>::max()}) {
      std::ranges::fill(bucket.values()[0], 0.25F);
      std::ranges::fill(bucket.values()[1], 1.0F);
      bucket.values()[0][5] = bad;
      reducer.all_reduce(bucket.segments());
      EXPECT_EQ(reducer.last().poisoned, 1U);
    }
    for (const float left : reducer.residual(2)) EXPECT_EQ(left, 2.0F);
    EXPECT_EQ(reducer.residual(1)[6], 0.5F);
    EXPECT_EQ(reducer.residual(1)[5], std::numeric_limits<float>::max());
  });
}

TEST(PoisonOfDense, NaNComesOutOfTheDenseSum) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      Reducer reducer(transport, {.compressor = "none", .min_bytes = 0});
      std::vector<float> gradient(1000, 1.0F);
      if (transport->rank() == 0) gradient[3] = kNaN;
      reducer.all_reduce(gradient, 0);
      EXPECT_TRUE(std::isnan(gradient[3]));
      EXPECT_EQ(gradient[4], 1.0F);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
