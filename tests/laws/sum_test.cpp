// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Laws 1 to 4 for every schedule of messages: AllReducer against plain loops, bit for bit, on all
// ranks, over several steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>

#include "compress/compressor.hpp"
#include "tests/laws/reference.hpp"
#include "tests/ranks.hpp"

namespace winnow::tests {
namespace {

/// Sizes 0, 1, below the number of ranks, odd, and several tiles.
const std::vector<Parameter> kParameters = {{11, 13001}, {12, 1}, {13, 0},
                                            {14, 1001},  {15, 3}, {16, 300}};
constexpr int kSteps = 3;

struct Case {
  const char* compressor;
  double density;
  Kind kind;
  ReduceOp op = ReduceOp::average;
  float decay = 1;
  int threads = 1;
  const char* schedule = "gather";
  std::optional<float> threshold = {};
};

class Sum : public testing::TestWithParam<Case> {};

Options options_of(const Case& c) {
  return {.compressor = c.compressor,
          .schedule = c.schedule,
          .op = c.op,
          .decay = c.decay,
          .min_bytes = 0,
          .seed = 12345678901234,
          .threads = c.threads};
}

/// What the reference is to do: the value coding is the compressor's, its selection is not.
Recipe recipe_of(const Case& c, const Topology& topology) {
  const Options options = options_of(c);
  Recipe recipe{.density = c.density,
                .op = c.op,
                .decay = c.decay,
                .balanced = options.schedule.ends_with("balanced"),
                .doubling = options.schedule.ends_with("doubling"),
                .shared = options.schedule == "shared",
                .value = compress::make_compressor(c.compressor)->codings().value,
                .seed = options.seed};
  recipe.threshold = c.threshold;
  if (options.schedule.starts_with("two_level:")) recipe.two_level = topology;
  return recipe;
}

TEST_P(Sum, EqualsReferenceOnAllRanks) {
  const Case c = GetParam();
  run_worlds(c.schedule, [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    AllReducer reducer(transport, options_of(c));
    Reference reference(transport->size(), kParameters, recipe_of(c, reducer.topology()));
    TestBucket bucket(kParameters);
    for (int step = 0; step < kSteps; ++step) {
      bucket.fill(c.kind, rank, step);
      reducer.all_reduce(bucket.segments());
      const auto expected =
          reference.step(all_gradients(kParameters, c.kind, transport->size(), step));
      for (std::size_t p = 0; p < kParameters.size(); ++p) {
        EXPECT_TRUE(same_bits(bucket.values()[p], expected[p]))
            << "step " << step << " parameter " << p << " ranks " << reducer.topology().to_string();
        EXPECT_TRUE(same_bits(reducer.residual(kParameters[p].id), reference.residual(rank, p)))
            << "residual, step " << step << " parameter " << p;
      }
    }
    EXPECT_EQ(reducer.last().schedule.find("dense"), std::string::npos);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Laws, Sum,
    testing::Values(Case{"none", 1, Kind::normal}, Case{"topk:1", 1, Kind::heavy_tailed},
                    Case{"topk:0.01", 0.01, Kind::normal},
                    Case{"topk:0.01", 0.01, Kind::heavy_tailed, ReduceOp::sum},
                    Case{"topk:0.1", 0.1, Kind::normal, ReduceOp::average, 0.9F},
                    Case{"topk:0.01", 0.01, Kind::all_equal},
                    Case{"topk:0.01", 0.01, Kind::all_zero},
                    Case{"topk:0.02", 0.02, Kind::mostly_zero},
                    Case{"topk:0.01", 0.01, Kind::denormal}, Case{"topk:0.6", 0.6, Kind::normal},
                    Case{"topk:0.01", 0.01, Kind::normal, ReduceOp::sum, 1, 3},
                    Case{"topk:0.01,int8", 0.01, Kind::heavy_tailed},
                    Case{"topk:0.3,int4:block=64:stochastic,raw32", 0.3, Kind::normal},
                    Case{"topk:0.3,bf16", 0.3, Kind::normal, ReduceOp::average, 0.9F},
                    Case{"topk:0.05,fp16:stochastic,bitmap", 0.05, Kind::heavy_tailed},
                    Case{"topk:0.01,sign", 0.01, Kind::mostly_zero},
                    Case{"int8", 1, Kind::normal, ReduceOp::sum, 0.5F},
                    Case{"int4:stochastic", 1, Kind::heavy_tailed, ReduceOp::average, 1, 3},
                    Case{"sign", 1, Kind::normal}, Case{"bf16:stochastic", 1, Kind::normal},
                    Case{"fp16", 1, Kind::denormal}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

constexpr auto kSum = ReduceOp::sum;
constexpr auto kAverage = ReduceOp::average;
INSTANTIATE_TEST_SUITE_P(
    LawsBalanced, Sum,
    testing::Values(Case{"none", 1, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"topk:1", 1, Kind::heavy_tailed, kSum, 1, 1, "balanced"},
                    Case{"topk:0.01", 0.01, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"topk:0.01", 0.01, Kind::heavy_tailed, kSum, 0.9F, 1, "balanced"},
                    Case{"topk:0.1", 0.1, Kind::normal, kAverage, 1, 3, "balanced"},
                    Case{"topk:0.01", 0.01, Kind::all_equal, kAverage, 1, 1, "balanced"},
                    Case{"topk:0.01", 0.01, Kind::all_zero, kAverage, 1, 1, "balanced"},
                    Case{"topk:0.02", 0.02, Kind::mostly_zero, kAverage, 1, 1, "balanced"},
                    Case{"topk:0.01", 0.01, Kind::denormal, kAverage, 1, 1, "balanced"},
                    Case{"topk:0.6", 0.6, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"topk:0.01,int8", 0.01, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"topk:0.2,int4:stochastic", 0.2, Kind::heavy_tailed, kSum, 1, 3,
                         "balanced"},
                    Case{"topk:0.01,sign,bitmap", 0.01, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"int8:stochastic", 1, Kind::normal, kAverage, 1, 3, "balanced"},
                    Case{"int4:block=64", 1, Kind::heavy_tailed, kSum, 0.5F, 1, "balanced"},
                    Case{"sign", 1, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"bf16", 1, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"fp16:stochastic", 1, Kind::heavy_tailed, kAverage, 1, 1, "balanced"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

// From nothing kept to everything, and messages that carry all positions because that is shorter.
INSTANTIATE_TEST_SUITE_P(
    LawsThreshold, Sum,
    testing::Values(
        Case{"threshold", 0, Kind::mostly_zero, kAverage, 1, 1, "gather", 0},
        Case{"threshold:0", 0, Kind::all_zero, kAverage, 1, 1, "gather", 0},
        Case{"threshold:0", 0, Kind::denormal, kSum, 1, 3, "gather", 0},
        Case{"threshold:1.5", 0, Kind::normal, kAverage, 0.9F, 1, "gather", 1.5F},
        Case{"threshold:0.01", 0, Kind::normal, kAverage, 1, 1, "gather", 0.01F},
        Case{"threshold:0,int8", 0, Kind::mostly_zero, kSum, 1, 1, "gather", 0},
        Case{"threshold", 0, Kind::mostly_zero, kSum, 1, 3, "doubling", 0},
        Case{"threshold", 0, Kind::all_zero, kSum, 1, 1, "doubling", 0},
        Case{"threshold:0", 0, Kind::heavy_tailed, kSum, 1, 1, "doubling", 0},
        Case{"threshold:2.5", 0, Kind::normal, kAverage, 0.9F, 1, "doubling", 2.5F},
        Case{"threshold:2,int4:block=64:stochastic", 0, Kind::mostly_zero, kAverage, 1, 1,
             "doubling", 2},
        Case{"threshold", 0, Kind::mostly_zero, kAverage, 1, 3, "balanced", 0},
        Case{"threshold", 0, Kind::all_zero, kAverage, 1, 1, "balanced", 0},
        Case{"threshold:0", 0, Kind::normal, kSum, 1, 1, "balanced", 0},
        Case{"threshold:0", 0, Kind::all_equal, kSum, 1, 1, "balanced", 0},
        Case{"threshold:2.5", 0, Kind::normal, kAverage, 0.9F, 3, "balanced", 2.5F},
        Case{"threshold:1,raw32", 0, Kind::normal, kAverage, 1, 1, "balanced", 1},
        Case{"threshold:0.5,bf16", 0, Kind::mostly_zero, kAverage, 1, 1, "balanced", 0.5F},
        Case{"threshold", 0, Kind::mostly_zero, kAverage, 1, 1, "two_level:gather", 0},
        Case{"threshold:1", 0, Kind::normal, kSum, 1, 1, "two_level:doubling", 1},
        Case{"threshold:2", 0, Kind::normal, kAverage, 0.9F, 1, "two_level:balanced", 2}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

// From unions that stay short to those that carry every position at once.
INSTANTIATE_TEST_SUITE_P(
    LawsDoubling, Sum,
    testing::Values(Case{"none", 1, Kind::normal, kAverage, 1, 1, "doubling"},
                    Case{"topk:1", 1, Kind::heavy_tailed, kSum, 1, 3, "doubling"},
                    Case{"topk:0.01", 0.01, Kind::normal, kAverage, 1, 1, "doubling"},
                    Case{"topk:0.01", 0.01, Kind::heavy_tailed, kSum, 0.9F, 3, "doubling"},
                    Case{"topk:0.01", 0.01, Kind::all_equal, kAverage, 1, 1, "doubling"},
                    Case{"topk:0.01", 0.01, Kind::all_zero, kAverage, 1, 1, "doubling"},
                    Case{"topk:0.02", 0.02, Kind::mostly_zero, kSum, 1, 1, "doubling"},
                    Case{"topk:0.1", 0.1, Kind::denormal, kAverage, 1, 1, "doubling"},
                    Case{"topk:0.3,raw32", 0.3, Kind::normal, kSum, 1, 1, "doubling"},
                    Case{"topk:0.6", 0.6, Kind::normal, kAverage, 1, 1, "doubling"},
                    Case{"topk:0.02,int8", 0.02, Kind::heavy_tailed, kSum, 1, 1, "doubling"},
                    Case{"topk:0.3,int4:block=64:stochastic,bitmap", 0.3, Kind::normal, kAverage, 1,
                         3, "doubling"},
                    Case{"int8:stochastic", 1, Kind::normal, kAverage, 1, 1, "doubling"},
                    Case{"sign", 1, Kind::normal, kAverage, 0.5F, 1, "doubling"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

INSTANTIATE_TEST_SUITE_P(
    LawsShared, Sum,
    testing::Values(Case{"none", 1, Kind::normal, kAverage, 1, 1, "shared"},
                    Case{"topk:0.01", 0.01, Kind::normal, kAverage, 1, 1, "shared"},
                    Case{"topk:0.01", 0.01, Kind::heavy_tailed, kSum, 0.9F, 1, "shared"},
                    Case{"topk:0.1", 0.1, Kind::normal, kAverage, 1, 3, "shared"},
                    Case{"topk:0.01", 0.01, Kind::all_equal, kAverage, 1, 1, "shared"},
                    Case{"topk:0.01", 0.01, Kind::all_zero, kAverage, 1, 1, "shared"},
                    Case{"topk:0.02", 0.02, Kind::mostly_zero, kAverage, 1, 1, "shared"},
                    Case{"topk:0.01", 0.01, Kind::denormal, kAverage, 1, 1, "shared"},
                    Case{"topk:0.6", 0.6, Kind::normal, kAverage, 1, 1, "shared"},
                    Case{"topk:0.01,int8", 0.01, Kind::normal, kAverage, 0.5F, 1, "shared"},
                    Case{"topk:0.2,int4:stochastic", 0.2, Kind::heavy_tailed, kSum, 1, 3, "shared"},
                    Case{"topk:0.01,sign,bitmap", 0.01, Kind::normal, kAverage, 1, 1, "shared"},
                    Case{"topk:0.05,fp16:stochastic,raw32", 0.05, Kind::normal, kSum, 1, 1,
                         "shared"},
                    Case{"int8:stochastic", 1, Kind::normal, kAverage, 1, 3, "shared"},
                    Case{"int4:block=64", 1, Kind::heavy_tailed, kSum, 0.5F, 1, "shared"},
                    Case{"sign", 1, Kind::normal, kAverage, 1, 1, "shared"},
                    Case{"bf16", 1, Kind::normal, kAverage, 1, 1, "shared"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

INSTANTIATE_TEST_SUITE_P(
    LawsTwoLevel, Sum,
    testing::Values(
        Case{"none", 1, Kind::normal, kAverage, 1, 1, "two_level:gather"},
        Case{"topk:1", 1, Kind::heavy_tailed, kSum, 1, 3, "two_level:balanced"},
        Case{"topk:0.01", 0.01, Kind::normal, kAverage, 1, 1, "two_level:gather"},
        Case{"topk:0.01", 0.01, Kind::heavy_tailed, kSum, 0.9F, 1, "two_level:balanced"},
        Case{"topk:0.01", 0.01, Kind::all_equal, kAverage, 1, 3, "two_level:balanced"},
        Case{"topk:0.02", 0.02, Kind::mostly_zero, kAverage, 1, 1, "two_level:gather"},
        Case{"topk:0.6", 0.6, Kind::denormal, kAverage, 1, 1, "two_level:balanced"},
        Case{"topk:0.2,int4:stochastic", 0.2, Kind::heavy_tailed, kSum, 1, 1, "two_level:gather"},
        Case{"topk:0.2,int8:stochastic", 0.2, Kind::normal, kSum, 0.5F, 1, "two_level:balanced"},
        Case{"int8:stochastic", 1, Kind::normal, kAverage, 1, 3, "two_level:gather"},
        Case{"int4:block=64", 1, Kind::heavy_tailed, kSum, 0.5F, 1, "two_level:balanced"},
        Case{"sign", 1, Kind::normal, kAverage, 1, 1, "two_level:balanced"},
        Case{"topk:0.01", 0.01, Kind::normal, kSum, 0.9F, 1, "two_level:doubling"},
        Case{"topk:0.3,int4:stochastic", 0.3, Kind::heavy_tailed, kAverage, 1, 1,
             "two_level:doubling"},
        Case{"none", 1, Kind::normal, kAverage, 1, 1, "two_level:doubling"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

// A parameter longer than a part travels in pieces, more of them than are under way at once; each
// is reduced like a parameter of its own.
class SumOfParts : public testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(
    Laws, SumOfParts,
    testing::Values(std::pair{"topk:0.01", "gather"}, std::pair{"topk:0.01", "balanced"},
                    std::pair{"topk:0.05,int8", "balanced"}, std::pair{"int4", "balanced"},
                    std::pair{"topk:0.01", "doubling"}, std::pair{"topk:0.4,int8", "doubling"},
                    std::pair{"topk:0.01", "two_level:gather"},
                    std::pair{"topk:0.1", "two_level:doubling"},
                    std::pair{"topk:0.05,int8", "two_level:balanced"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });
INSTANTIATE_TEST_SUITE_P(LawsShared, SumOfParts,
                         testing::Values(std::pair{"topk:0.01", "shared"},
                                         std::pair{"topk:0.05,int8", "shared"}));

TEST_P(SumOfParts, PiecesAreReducedLikeParameters) {
  constexpr std::uint64_t kCount = 5000, kPart = 1024;
  const auto compressor = compress::make_compressor(GetParam().first);
  Recipe recipe{.density = static_cast<double>(compressor->kept(1000)) / 1000,
                .balanced = std::string_view(GetParam().second).ends_with("balanced"),
                .doubling = std::string_view(GetParam().second).ends_with("doubling"),
                .shared = GetParam().second == std::string_view("shared"),
                .value = compressor->codings().value};
  run_worlds(GetParam().second, [&](const std::shared_ptr<Transport>& transport) {
    AllReducer reducer(transport, {.compressor = GetParam().first,
                                   .schedule = GetParam().second,
                                   .min_bytes = 0,
                                   .max_part = kPart});
    Recipe of_piece = recipe;
    if (std::string_view(GetParam().second).starts_with("two_level:")) {
      of_piece.two_level = reducer.topology();
    }
    std::vector<Reference> pieces;
    for (std::uint64_t offset = 0; offset < kCount; offset += kPart) {
      const std::vector<Parameter> piece = {{21, std::min(kPart, kCount - offset)}};
      pieces.emplace_back(transport->size(), piece, of_piece);
    }
    const std::vector<Parameter> whole = {{21, kCount}};
    TestBucket bucket(whole);
    for (int step = 0; step < kSteps; ++step) {
      bucket.fill(Kind::normal, transport->rank(), step);
      reducer.all_reduce(bucket.segments());
      const auto gradients = all_gradients(whole, Kind::normal, transport->size(), step);
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const std::size_t begin = p * kPart, size = std::min(kPart, kCount - begin);
        std::vector<std::vector<std::vector<float>>> piece_gradients;
        for (const auto& of_rank : gradients) {
          const auto from = of_rank[0].begin() + static_cast<std::ptrdiff_t>(begin);
          piece_gradients.push_back({{from, from + static_cast<std::ptrdiff_t>(size)}});
        }
        const auto expected = pieces[p].step(piece_gradients)[0];
        const auto& left = pieces[p].residual(transport->rank(), 0);
        EXPECT_TRUE(same_bits(std::span(bucket.values()[0]).subspan(begin, size), expected));
        EXPECT_TRUE(same_bits(reducer.residual(21).subspan(begin, size), left));
      }
    }
    EXPECT_EQ(reducer.last().schedule, GetParam().second);
  });
}

// Law 1 (d), independent of the reference above: what goes in comes out or stays.
class Conservation : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Conservation, GlobalMassIsKeptAtEachPosition) {
  constexpr std::uint64_t kCount = 20011;
  const bool lossy = !compress::make_compressor(GetParam().first)->codings().exact();
  run_worlds(GetParam().second, [&](const std::shared_ptr<Transport>& transport) {
    const auto size = static_cast<std::size_t>(transport->size());
    AllReducer reducer(
        transport,
        {.compressor = GetParam().first, .schedule = GetParam().second, .op = ReduceOp::sum});
    std::vector<double> in(kCount), terms(kCount), out(kCount);
    std::vector<float> gradient;
    for (int step = 0; step < 6; ++step) {
      for (int r = 0; r < transport->size(); ++r) {
        gradient = make_gradient(Kind::heavy_tailed, kCount, r, step, 1);
        for (std::size_t i = 0; i < kCount; ++i) {
          in[i] += gradient[i];
          terms[i] += std::fabs(gradient[i]);
        }
      }
      gradient = make_gradient(Kind::heavy_tailed, kCount, transport->rank(), step, 1);
      reducer.all_reduce(gradient, 0);
      for (std::size_t i = 0; i < kCount; ++i) out[i] += gradient[i];
    }
    std::vector<float> residuals(kCount * size);
    Workspace workspace;
    transport->all_gather({.workspace = &workspace}, std::as_bytes(reducer.residual(0)),
                          std::as_writable_bytes(std::span(residuals)),
                          Deadline::after(std::chrono::seconds(60)));
    const double largest = *std::ranges::max_element(terms);
    for (std::size_t i = 0; i < kCount; ++i) {
      double left = 0;
      for (std::size_t r = 0; r < size; ++r) left += residuals[r * kCount + i];
      // What a lossy coding leaves behind can be as large as anything in its block.
      const double size_of_terms = lossy ? largest : terms[i];
      const double bound =
          6 * static_cast<double>(size) * std::ldexp(1.0, -23) * size_of_terms + 1e-300;
      EXPECT_NEAR(in[i], out[i] + left, bound) << "position " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Laws, Conservation,
    testing::Values(std::pair{"topk:0.01", "gather"}, std::pair{"topk:0.01", "balanced"},
                    std::pair{"topk:0.05,int8", "balanced"},
                    std::pair{"int4:stochastic", "balanced"}, std::pair{"sign", "gather"},
                    std::pair{"topk:0.01", "doubling"}, std::pair{"topk:0.2,int8", "doubling"},
                    std::pair{"topk:0.01", "two_level:gather"},
                    std::pair{"topk:0.1", "two_level:doubling"},
                    std::pair{"threshold:1,int8", "gather"},
                    std::pair{"threshold:1,int8", "doubling"},
                    std::pair{"threshold:0.1,int4:stochastic", "balanced"},
                    std::pair{"topk:0.05,int8", "two_level:balanced"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });
INSTANTIATE_TEST_SUITE_P(LawsShared, Conservation,
                         testing::Values(std::pair{"topk:0.01", "shared"},
                                         std::pair{"topk:0.05,int8", "shared"},
                                         std::pair{"int4:stochastic", "shared"}));

// The bytes that Stats reports are those that the transport moved.
// A rank that sends what it says, whatever the support: the sums of owners have a fixed size, what
// goes to them is k elements in all.
TEST(WireBytes, OfBalancedEqualTheTransportsCount) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.01,int8", .schedule = "balanced"});
      for (int step = 0; step < 3; ++step) {
        auto gradient = make_gradient(Kind::heavy_tailed, 100000, transport->rank(), step, 1);
        const auto before = transport->bytes_sent();
        reducer.all_reduce(gradient, 0);
        // The first call compares what the ranks are about to do, in headers.
        const std::uint64_t headers =
            step > 0 ? 0 : 64 * static_cast<std::uint64_t>(transport->size() - 1);
        EXPECT_EQ(reducer.last().wire_bytes + headers, transport->bytes_sent() - before);
        EXPECT_GE(reducer.last().kept, 1000U);
        EXPECT_LE(reducer.last().kept, 1002U);
      }
    });
  }
}

// No message of doubling is longer than one of every position in float32.
TEST(WireBytes, OfDoublingEqualTheTransportsCount) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.45", .schedule = "doubling"});
      for (int step = 0; step < 2; ++step) {
        auto gradient = make_gradient(Kind::normal, 50000, transport->rank(), step, 1);
        const auto before = transport->bytes_sent();
        reducer.all_reduce(gradient, 0);
        const Stats last = reducer.last();
        EXPECT_EQ(last.kept, 22500U);
        if (step == 0) continue;
        EXPECT_EQ(last.wire_bytes, transport->bytes_sent() - before);
        EXPECT_LE(last.wire_bytes, 3 * (64 + 4 * gradient.size()));  // messages of 7 ranks
      }
    });
  }
}

// A gradient that is sparse by nature, 1 % of it, spread evenly, on each rank elsewhere: all of it
// comes out at once, and what travels is no more than its union has to take.
TEST(WireBytes, OfALosslessUnion) {
  constexpr std::uint64_t kCount = 4194304, kEvery = 100;
  const auto place = [](std::uint64_t block, std::uint64_t rank) {
    return kEvery * block + 14 * rank + (block * 0x9E3779B97F4A7C15U >> 32) % 14;
  };
  for (const auto& target :
       {std::pair{"gather", 650000U}, {"doubling", 650000U}, {"balanced", 780000U}}) {
    const char* const schedule = target.first;
    run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
      const auto ranks = static_cast<std::uint64_t>(transport->size());
      const auto self = static_cast<std::uint64_t>(transport->rank());
      AllReducer reducer(transport,
                         {.compressor = "threshold", .schedule = schedule, .op = ReduceOp::sum});
      std::vector<float> gradient(kCount), expected(kCount);
      for (std::uint64_t block = 0; block < kCount / kEvery; ++block) {
        for (std::uint64_t rank = 0; rank < ranks; ++rank) {
          expected[place(block, rank)] = static_cast<float>(1 + block % 1000 + rank);
        }
        gradient[place(block, self)] = expected[place(block, self)];
      }
      const auto before = transport->bytes_sent();
      reducer.all_reduce(gradient, 0);
      EXPECT_TRUE(same_bits(gradient, expected)) << schedule;
      for (const float left : reducer.residual(0)) EXPECT_EQ(left, 0.0F);
      const Stats last = reducer.last();
      EXPECT_EQ(last.wire_bytes + 64 * (ranks - 1), transport->bytes_sent() - before);
      EXPECT_GE(last.kept, kCount / kEvery * (self == 0 ? 1 : 0));
      if (ranks == 4) {
        EXPECT_LE(last.wire_bytes, target.second) << schedule;
      }
    });
  }
}

// Some ranks' messages carry every position, others a few, others none.
TEST(LosslessUnion, OfDenseAndSparseGradients) {
  const std::vector<Parameter> parameters = {{1, 9001}, {2, 70}};
  for (const char* schedule :
       {"gather", "doubling", "balanced", "two_level:gather", "two_level:balanced"}) {
    run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(
          transport,
          {.compressor = "threshold", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0});
      TestBucket bucket(parameters);
      for (int step = 0; step < 3; ++step) {
        const auto gradient = [&](int rank, std::size_t p, std::size_t i) {
          const int kind = (rank + step) % 3;
          const bool named = kind == 0 || (kind == 1 && (i + p) % 50 == 0);
          return named ? static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 100) : 0.0F;
        };
        for (std::size_t p = 0; p < parameters.size(); ++p)
          for (std::size_t i = 0; i < parameters[p].count; ++i)
            bucket.values()[p][i] = gradient(transport->rank(), p, i);
        reducer.all_reduce(bucket.segments());
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          std::vector<float> sum(parameters[p].count);
          for (int rank = 0; rank < transport->size(); ++rank)
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient(rank, p, i);
          EXPECT_TRUE(same_bits(bucket.values()[p], sum)) << schedule << " step " << step;
          for (const float left : reducer.residual(parameters[p].id)) EXPECT_EQ(left, 0.0F);
        }
      }
    });
  }
}

// Whatever a gradient is, no message of it is longer than all elements.
TEST(WireBytes, OfAThresholdAreBounded) {
  for (const char* schedule : {"gather", "doubling", "balanced"}) {
    for (const int ranks : rank_counts()) {
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
        AllReducer reducer(transport, {.compressor = "threshold", .schedule = schedule});
        std::vector<float> gradient(40000, 1.0F);
        gradient[7] = 0;
        reducer.all_reduce(gradient, 0);
        const auto peers = static_cast<std::uint64_t>(transport->size() - 1);
        const std::uint64_t all = 4 * gradient.size();
        const bool balanced = schedule == std::string_view("balanced");
        EXPECT_LE(reducer.last().wire_bytes, balanced ? 2 * (64 * peers + all) : peers * (64 + all))
            << schedule;
      });
    }
  }
}

TEST(WireBytes, StatsEqualTheTransportsCount) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.01", .schedule = "gather"});
      auto gradient = make_gradient(Kind::normal, 100000, transport->rank(), 0, 1);
      reducer.all_reduce(gradient, 0);
      gradient = make_gradient(Kind::normal, 100000, transport->rank(), 1, 1);
      const auto before = transport->bytes_sent();
      reducer.all_reduce(gradient, 0);
      EXPECT_EQ(reducer.last().wire_bytes, transport->bytes_sent() - before);
      EXPECT_EQ(reducer.last().kept, 1000U);
      if (transport->size() == 4) {
        EXPECT_GT(static_cast<double>(reducer.last().dense_wire_bytes),
                  35.0 * static_cast<double>(reducer.last().wire_bytes));
      }
    });
  }
}

}  // namespace
}  // namespace winnow::tests
