// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Laws 1 to 4 for every schedule with messages: AllReducer against plain loops, bit for bit, on all
// ranks, over several steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "compress/compressor.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

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
  double sums = 0;  ///< as in Recipe
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

/// The reference's recipe: it has the compressor's value coding, but its own selection.
Recipe recipe_of(const Case& c, const Topology& topology) {
  const Options options = options_of(c);
  Recipe recipe{.density = c.density,
                .op = c.op,
                .decay = c.decay,
                .balanced = options.schedule.ends_with("balanced"),
                .doubling = options.schedule.ends_with("doubling"),
                .shared = options.schedule.ends_with("shared"),
                .randomk = options.compressor.starts_with("randomk"),
                .value = compress::make_compressor(c.compressor)->codings().value,
                .seed = options.seed};
  recipe.threshold = c.threshold;
  recipe.sums = c.sums;
  if (options.schedule.starts_with("two_level:")) recipe.two_level = topology;
  return recipe;
}

/// A rank's state after a step, by parameter.
struct Held {
  std::vector<std::vector<float>> result, residual;
};

/// This rank's state by the reference. Its loops run over all ranks, so rank 0 runs them and tells
/// the others.
Held expected_step(Transport& transport, Reference& reference, Kind kind, int step) {
  Held mine;
  if (transport.rank() == 0) {
    mine.result = reference.step(all_gradients(kParameters, kind, transport.size(), step));
  }
  for (std::size_t p = 0; p < kParameters.size(); ++p) {
    if (transport.rank() == 0) {
      for (int peer = 1; peer < transport.size(); ++peer) {
        transport.send(std::as_bytes(std::span(mine.result[p])), peer);
        transport.send(std::as_bytes(std::span(reference.residual(peer, p))), peer);
      }
      mine.residual.push_back(reference.residual(0, p));
    } else {
      for (auto* values : {&mine.result, &mine.residual}) {
        values->emplace_back(kParameters[p].count);
        transport.recv(std::as_writable_bytes(std::span(values->back())), 0, nullptr);
      }
    }
  }
  transport.wait(transport.start({}), Deadline::never());
  return mine;
}

TEST_P(Sum, EqualsReferenceOnAllRanks) {
  const Case c = GetParam();
  run_worlds(c.schedule, [&](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, options_of(c));
    Reference reference(transport->size(), kParameters, recipe_of(c, reducer.topology()));
    TestBucket bucket(kParameters);
    for (int step = 0; step < kSteps; ++step) {
      bucket.fill(c.kind, transport->rank(), step);
      reducer.all_reduce(bucket.segments());
      const Held expected = expected_step(*transport, reference, c.kind, step);
      for (std::size_t p = 0; p < kParameters.size(); ++p) {
        EXPECT_TRUE(same_bits(bucket.values()[p], expected.result[p]))
            << "step " << step << " parameter " << p << " ranks " << reducer.topology().to_string();
        EXPECT_TRUE(same_bits(reducer.residual(kParameters[p].id), expected.residual[p]))
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
                    Case{"topk:0.05,int2", 0.05, Kind::heavy_tailed},
                    Case{"topk:0.05,fp8", 0.05, Kind::heavy_tailed},
                    Case{"topk:0.05,mean", 0.05, Kind::heavy_tailed},
                    Case{"topk:0.01,mean:block=64", 0.01, Kind::normal, ReduceOp::sum, 0.9F, 3},
                    Case{"topk:0.6,mean", 0.6, Kind::normal},
                    Case{"topk:0.02,mean", 0.02, Kind::mostly_zero},
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
                    Case{"int2", 1, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"fp8:stochastic", 1, Kind::heavy_tailed, kSum, 1, 3, "balanced"},
                    Case{"bf16", 1, Kind::normal, kAverage, 1, 1, "balanced"},
                    Case{"fp16:stochastic", 1, Kind::heavy_tailed, kAverage, 1, 1, "balanced"},
                    Case{"topk:0.01:sums=0.05", 0.01, Kind::normal, kAverage, 1, 3, "balanced",
                         std::nullopt, 0.05},
                    Case{"topk:0.1:sums=0.02,int8", 0.1, Kind::heavy_tailed, kSum, 0.9F, 1,
                         "balanced", std::nullopt, 0.02},
                    Case{"topk:0.02:sums=1,int4:stochastic", 0.02, Kind::mostly_zero, kAverage, 1,
                         1, "balanced", std::nullopt, 1}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

// The thresholds go from keeping nothing to keeping everything. Some messages carry all positions
// since that is shorter.
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

// Some unions stay short; others carry every position at once.
INSTANTIATE_TEST_SUITE_P(
    LawsRandomK, Sum,
    testing::Values(Case{"randomk:0.01", 0.01, Kind::normal, kAverage, 1, 1, "gather"},
                    Case{"randomk:0.3,int8", 0.3, Kind::heavy_tailed, kSum, 0.9F, 3, "gather"},
                    Case{"randomk:0.1,sign", 0.1, Kind::mostly_zero, kAverage, 1, 1, "gather"},
                    Case{"randomk:0.01", 0.01, Kind::normal, kSum, 1, 1, "balanced"},
                    Case{"randomk:0.3,int4:stochastic", 0.3, Kind::normal, kAverage, 1, 3,
                         "balanced"},
                    Case{"randomk:0.05", 0.05, Kind::heavy_tailed, kSum, 0.9F, 1, "doubling"},
                    Case{"randomk:0.05,bf16", 0.05, Kind::normal, kAverage, 1, 1, "shared"},
                    Case{"randomk:0.05", 0.05, Kind::normal, kAverage, 1, 1, "two_level:gather"},
                    Case{"randomk:0.05,int8", 0.05, Kind::normal, kSum, 1, 1, "two_level:balanced"},
                    Case{"randomk:0.05", 0.05, Kind::denormal, kSum, 1, 1, "two_level:doubling"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

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
                    Case{"topk:0.02,mean", 0.02, Kind::normal, kAverage, 1, 1, "doubling"},
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
        Case{"topk:0.02,mean", 0.02, Kind::normal, kAverage, 1, 1, "two_level:gather"},
        Case{"int4:block=64", 1, Kind::heavy_tailed, kSum, 0.5F, 1, "two_level:balanced"},
        Case{"sign", 1, Kind::normal, kAverage, 1, 1, "two_level:balanced"},
        Case{"topk:0.01:sums=0.1", 0.01, Kind::normal, kSum, 1, 1, "two_level:balanced",
             std::nullopt, 0.1},
        Case{"none", 1, Kind::normal, kAverage, 1, 1, "two_level:shared"},
        Case{"topk:0.01", 0.01, Kind::normal, kSum, 0.9F, 1, "two_level:shared"},
        Case{"topk:0.1,raw32", 0.1, Kind::mostly_zero, kAverage, 1, 3, "two_level:shared"},
        Case{"topk:0.2,int4:stochastic", 0.2, Kind::heavy_tailed, kSum, 1, 1, "two_level:shared"},
        Case{"topk:0.01,sign", 0.01, Kind::normal, kAverage, 1, 1, "two_level:shared"},
        Case{"int8:stochastic", 1, Kind::normal, kAverage, 0.5F, 1, "two_level:shared"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

INSTANTIATE_TEST_SUITE_P(
    LawsDoublingOfNodes, Sum,
    testing::Values(Case{"topk:0.01", 0.01, Kind::normal, kSum, 0.9F, 1, "two_level:doubling"},
                    Case{"topk:0.02", 0.02, Kind::mostly_zero, kSum, 1, 1, "two_level:doubling"},
                    Case{"topk:0.3,int4:stochastic", 0.3, Kind::heavy_tailed, kAverage, 1, 1,
                         "two_level:doubling"},
                    Case{"none", 1, Kind::normal, kAverage, 1, 1, "two_level:doubling"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

// A parameter longer than a part travels in pieces, more than are under way at once; each piece is
// reduced like a parameter.
class SumOfParts : public testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(LawsGather, SumOfParts,
                         testing::Values(std::pair{"topk:0.01", "gather"},
                                         std::pair{"topk:0.05,mean", "gather"},
                                         std::pair{"topk:0.05,int8", "gather"}));
INSTANTIATE_TEST_SUITE_P(LawsBalanced, SumOfParts,
                         testing::Values(std::pair{"topk:0.01", "balanced"},
                                         std::pair{"topk:0.05,int8", "balanced"},
                                         std::pair{"int4", "balanced"}));
INSTANTIATE_TEST_SUITE_P(Laws, SumOfParts,
                         testing::Values(std::pair{"topk:0.01", "doubling"},
                                         std::pair{"topk:0.4,int8", "doubling"},
                                         std::pair{"topk:0.01", "two_level:gather"},
                                         std::pair{"topk:0.1", "two_level:doubling"},
                                         std::pair{"topk:0.05,int8", "two_level:balanced"}),
                         [](const auto& test) { return "case" + std::to_string(test.index); });
INSTANTIATE_TEST_SUITE_P(LawsShared, SumOfParts,
                         testing::Values(std::pair{"topk:0.01", "shared"},
                                         std::pair{"topk:0.05,int8", "shared"},
                                         std::pair{"topk:0.05", "two_level:shared"},
                                         std::pair{"topk:0.05,int8", "two_level:shared"}));

// Values are padded, so a list of all positions but one takes as many bytes as all.
TEST(SumOfFew, IsDrawnOnAllRanks) {
  for (const char* schedule : {"gather", "doubling", "balanced", "two_level:doubling"}) {
    run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
      const auto ranks = static_cast<float>(transport->size());
      for (const auto& [compressor, count] :
           {std::pair{"randomk:0.5", 2U}, {"randomk:0.99", 100U}}) {
        AllReducer reducer(
            transport,
            {.compressor = compressor, .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0});
        std::vector<float> gradient(count, 1.0F);
        reducer.all_reduce(gradient, 0);
        const auto drawn = std::ranges::count(gradient, ranks);
        EXPECT_EQ(drawn + std::ranges::count(gradient, 0.0F), count) << schedule;
        EXPECT_TRUE(transport->size() == 1 || drawn >= count / 2) << schedule;
      }
    });
  }
}

TEST_P(SumOfParts, PiecesAreReducedLikeParameters) {
  constexpr std::uint64_t kCount = 5000, kPart = 1024;
  const auto compressor = compress::make_compressor(GetParam().first);
  Recipe recipe{.density = static_cast<double>(compressor->kept(1000)) / 1000,
                .balanced = std::string_view(GetParam().second).ends_with("balanced"),
                .doubling = std::string_view(GetParam().second).ends_with("doubling"),
                .shared = std::string_view(GetParam().second).ends_with("shared"),
                .value = compressor->codings().value};
  run_worlds(GetParam().second, [&](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, {.compressor = GetParam().first,
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
      const std::vector<float> residual = reducer.residual(21);
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
        EXPECT_TRUE(same_bits(std::span(residual).subspan(begin, size), left));
      }
    }
    // Two levels with one rank per node report the schedule between nodes.
    EXPECT_TRUE(std::string_view(GetParam().second).ends_with(reducer.last().schedule));
  });
}

// Law 1 (d), independent of the reference above: what goes in comes out or stays.
class Conservation : public testing::TestWithParam<std::pair<const char*, const char*>> {};

void gather(Transport& transport, std::span<const float> mine, std::span<float> all) {
  Workspace workspace;
  transport.all_gather({.workspace = &workspace}, std::as_bytes(mine), std::as_writable_bytes(all),
                       Deadline::never());
}

TEST_P(Conservation, GlobalMassIsKeptAtEachPosition) {
  constexpr std::uint64_t kCount = 20011;
  const bool lossy = !compress::make_compressor(GetParam().first)->codings().exact();
  run_worlds(GetParam().second, [&](const std::shared_ptr<Transport>& transport) {
    const auto size = static_cast<std::size_t>(transport->size());
    Reducer reducer(
        transport,
        {.compressor = GetParam().first, .schedule = GetParam().second, .op = ReduceOp::sum});
    std::vector<double> in(kCount), terms(kCount), out(kCount);
    for (int step = 0; step < 6; ++step) {
      auto gradient = make_gradient(Kind::heavy_tailed, kCount, transport->rank(), step, 1);
      std::vector<float> gradients(kCount * size);
      gather(*transport, gradient, gradients);
      for (std::size_t r = 0; r < size; ++r) {
        for (std::size_t i = 0; i < kCount; ++i) {
          in[i] += gradients[r * kCount + i];
          terms[i] += std::fabs(gradients[r * kCount + i]);
        }
      }
      reducer.all_reduce(gradient, 0);
      for (std::size_t i = 0; i < kCount; ++i) out[i] += gradient[i];
    }
    std::vector<float> residuals(kCount * size);
    gather(*transport, reducer.residual(0), residuals);
    const double largest = *std::ranges::max_element(terms);
    for (std::size_t i = 0; i < kCount; ++i) {
      double left = 0;
      for (std::size_t r = 0; r < size; ++r) left += residuals[r * kCount + i];
      // A lossy coding can leave behind an error as large as any value of its block.
      const double size_of_terms = lossy ? largest : terms[i];
      const double bound =
          6 * static_cast<double>(size) * std::ldexp(1.0, -23) * size_of_terms + 1e-300;
      EXPECT_NEAR(in[i], out[i] + left, bound) << "position " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(LawsGather, Conservation,
                         testing::Values(std::pair{"topk:0.01", "gather"},
                                         std::pair{"topk:0.05,mean", "gather"},
                                         std::pair{"sign", "gather"}));
INSTANTIATE_TEST_SUITE_P(LawsBalanced, Conservation,
                         testing::Values(std::pair{"topk:0.01", "balanced"},
                                         std::pair{"topk:0.05,int8", "balanced"},
                                         std::pair{"int4:stochastic", "balanced"}));
INSTANTIATE_TEST_SUITE_P(Laws, Conservation,
                         testing::Values(std::pair{"topk:0.01", "doubling"},
                                         std::pair{"topk:0.2,int8", "doubling"},
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
                                         std::pair{"int4:stochastic", "shared"},
                                         std::pair{"topk:0.01", "two_level:shared"},
                                         std::pair{"topk:0.05,int8", "two_level:shared"}));

}  // namespace
}  // namespace winnow::tests
