// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Laws 1 to 4 for the gather schedule: AllReducer against plain loops, bit for bit, on all ranks,
// over several steps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <tuple>

#include "tests/laws/reference.hpp"
#include "tests/ranks.hpp"

namespace winnow::tests {
namespace {

/// Sizes 0, 1, below the number of ranks, odd, and several tiles.
const std::vector<Parameter> kParameters = {{11, 40009}, {12, 1}, {13, 0},
                                            {14, 1001},  {15, 3}, {16, 300}};
constexpr int kSteps = 4;

struct Case {
  const char* compressor;
  double density;
  Kind kind;
  ReduceOp op = ReduceOp::average;
  float decay = 1;
  int threads = 1;
  std::uint64_t max_part = Options::kMaxPart;
};

class Gather : public testing::TestWithParam<Case> {};

Options options_of(const Case& c) {
  return {.compressor = c.compressor,
          .schedule = "gather",
          .op = c.op,
          .decay = c.decay,
          .min_bytes = 0,
          .max_part = c.max_part,
          .threads = c.threads};
}

TEST_P(Gather, EqualsReferenceOnAllRanks) {
  const Case c = GetParam();
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      AllReducer reducer(transport, options_of(c));
      Reference reference(transport->size(), kParameters, c.density, c.op, c.decay);
      TestBucket bucket(kParameters);
      for (int step = 0; step < kSteps; ++step) {
        bucket.fill(c.kind, rank, step);
        reducer.all_reduce(bucket.segments());
        const auto expected =
            reference.step(all_gradients(kParameters, c.kind, transport->size(), step));
        for (std::size_t p = 0; p < kParameters.size(); ++p) {
          EXPECT_TRUE(same_bits(bucket.values()[p], expected[p]))
              << "step " << step << " parameter " << p << " ranks " << transport->size();
          EXPECT_TRUE(same_bits(reducer.residual(kParameters[p].id), reference.residual(rank, p)))
              << "residual, step " << step << " parameter " << p;
        }
      }
      EXPECT_EQ(reducer.last().schedule.find("dense"), std::string::npos);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Laws, Gather,
    testing::Values(Case{"none", 1, Kind::normal}, Case{"topk:1", 1, Kind::heavy_tailed},
                    Case{"topk:0.01", 0.01, Kind::normal},
                    Case{"topk:0.01", 0.01, Kind::heavy_tailed, ReduceOp::sum},
                    Case{"topk:0.1", 0.1, Kind::normal, ReduceOp::average, 0.9F},
                    Case{"topk:0.01", 0.01, Kind::all_equal},
                    Case{"topk:0.01", 0.01, Kind::all_zero},
                    Case{"topk:0.02", 0.02, Kind::mostly_zero},
                    Case{"topk:0.01", 0.01, Kind::denormal}, Case{"topk:0.6", 0.6, Kind::normal},
                    Case{"topk:0.01", 0.01, Kind::normal, ReduceOp::sum, 1, 3}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

// A part that does not hold a whole parameter selects from each piece of it.
TEST(GatherParts, PiecesAreSelectedLikeParameters) {
  const std::vector<Parameter> whole = {{21, 5000}};
  const std::vector<Parameter> pieces = {{21, 2048}, {22, 2048}, {23, 904}};
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(
          transport,
          {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0, .max_part = 2048});
      Reference reference(transport->size(), pieces, 0.01, ReduceOp::average);
      TestBucket bucket(whole);
      for (int step = 0; step < kSteps; ++step) {
        bucket.fill(Kind::normal, transport->rank(), step);
        reducer.all_reduce(bucket.segments());
        auto gradients = all_gradients(whole, Kind::normal, transport->size(), step);
        for (auto& of_rank : gradients) {
          const std::vector<float> all = of_rank[0];
          of_rank = {{all.begin(), all.begin() + 2048},
                     {all.begin() + 2048, all.begin() + 4096},
                     {all.begin() + 4096, all.end()}};
        }
        const auto expected = reference.step(gradients);
        std::size_t offset = 0;
        for (std::size_t p = 0; p < pieces.size(); ++p) {
          EXPECT_TRUE(same_bits(std::span(bucket.values()[0]).subspan(offset, pieces[p].count),
                                expected[p]));
          EXPECT_TRUE(same_bits(reducer.residual(21).subspan(offset, pieces[p].count),
                                reference.residual(transport->rank(), p)));
          offset += pieces[p].count;
        }
      }
      EXPECT_EQ(reducer.last().schedule, "gather+gather+gather");
    });
  }
}

// Law 1 (d), independent of the reference above: what goes in comes out or stays.
TEST(Conservation, GlobalMassIsKeptAtEachPosition) {
  constexpr std::uint64_t kCount = 20011;
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto size = static_cast<std::size_t>(transport->size());
      AllReducer reducer(transport,
                         {.compressor = "topk:0.01", .schedule = "gather", .op = ReduceOp::sum});
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
      for (std::size_t i = 0; i < kCount; ++i) {
        double left = 0;
        for (std::size_t r = 0; r < size; ++r) left += residuals[r * kCount + i];
        const double bound =
            6 * static_cast<double>(size) * std::ldexp(1.0, -23) * terms[i] + 1e-300;
        EXPECT_NEAR(in[i], out[i] + left, bound) << "position " << i;
      }
    });
  }
}

// The bytes that Stats reports are those that the transport moved.
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
