// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Weights minus a share of what a rank has not sent, by plain formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "kernels/half.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/harness/thread_allocations.hpp"
#include "tests/harness/usage_error.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// first, first + 1, ...: every element differs.
std::vector<float> rising(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Of 1 to 1000 the ten largest travel, so that 1 to 990 wait; then 981 to 990 travel.
TEST(LookAhead, IsTheWeightsMinusAShareOfWhatWaits) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const Options options{.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0};
      Reducer reducer(transport, options);
      const std::vector<float> weights = rising(1000, -500);
      EXPECT_EQ(reducer.look_ahead(1, weights, 0.25F), weights) << "before the first call";
      for (const std::size_t waits : {990U, 980U}) {
        std::vector<float> gradient = waits == 990 ? rising(1000, 1) : std::vector<float>(1000);
        reducer.all_reduce(gradient, 1);
        std::vector<float> expected = weights;
        for (std::size_t i = 0; i < waits; ++i) expected[i] -= 0.25F * static_cast<float>(i + 1);
        EXPECT_EQ(reducer.look_ahead(1, weights, 0.25F), expected);
        EXPECT_EQ(reducer.look_ahead(1, weights, 0), weights);
        EXPECT_EQ(reducer.look_ahead(2, weights, 0.25F), weights) << "of another parameter";
      }
    });
  }
}

// v = v / 2 + result and weights -= v: an element that is sent by the call number s has moved its
// weight by (2 - 2^(s - n)) times its sum after call n.
TEST(LookAhead, IsWhereAResidualMovesTheWeightsInTheEnd) {
  constexpr std::size_t kCount = 8;
  constexpr int kLast = 14;
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      Reducer reducer(
          transport,
          {.compressor = "topk:0.25", .schedule = "gather", .op = ReduceOp::sum, .min_bytes = 0});
      const auto size = static_cast<float>(transport->size());
      constexpr float kShare = 2;
      std::vector<float> weights(kCount), velocity(kCount), promised(kCount);
      for (int call = 0; call <= kLast; ++call) {
        std::vector<float> result = call == 0 ? rising(kCount, 1) : std::vector<float>(kCount);
        reducer.all_reduce(result, 1);
        for (std::size_t i = 0; i < kCount; ++i) {
          velocity[i] = velocity[i] / 2 + result[i];
          weights[i] -= velocity[i];
        }
        if (call > 0) continue;
        // Each rank has the same gradient, so their shifts add up to `size` times this one's.
        const std::vector<float> ahead = reducer.look_ahead(1, weights, kShare);
        for (std::size_t i = 0; i < kCount; ++i) promised[i] = size * (ahead[i] - weights[i]);
      }
      for (std::size_t i = 0; i < kCount; ++i) {
        const int sent = static_cast<int>(3 - i / 2);
        const float sum = size * static_cast<float>(i + 1);
        EXPECT_EQ(weights[i], sum * (std::ldexp(1.0F, sent - kLast) - 2)) << i;
        EXPECT_EQ(promised[i], sent == 0 ? 0 : -2 * sum) << i;
      }
    });
  }
}

TEST(LookAhead, TheShareIsThatOfTheRanksAndTheMomentum) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const AllReducer reducer(transport, {.compressor = "topk:0.1", .schedule = "gather"});
      const auto size = static_cast<float>(transport->size());
      const float root = std::sqrt(std::max(size, 4.0F));
      EXPECT_FLOAT_EQ(reducer.look_ahead_share(0.75F), 2 / root);  // Options::op is the average
      EXPECT_FLOAT_EQ(reducer.look_ahead_share(0, ReduceOp::average), 0.5F / root);
      EXPECT_FLOAT_EQ(reducer.look_ahead_share(0.75F, ReduceOp::sum), 2 * size / root);
      for (const float wrong : {-0.5F, 1.0F, std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_NE(usage_error([&] { (void)reducer.look_ahead_share(wrong); }).find("[0, 1)"),
                  std::string::npos);
      }
      const auto of_maximum = [&] { (void)reducer.look_ahead_share(0, ReduceOp::maximum); };
      EXPECT_EQ(usage_error(of_maximum), "only sums and averages leave residuals");
    });
  }
}

struct Case {
  const char* compressor;
  const char* schedule;
  ElementType type = ElementType::float32;
};

class LookAheadOf : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Schedules, LookAheadOf,
                         testing::Values(Case{"topk:0.02", "gather"}, Case{"int4", "gather"},
                                         Case{"topk:0.02,int8", "balanced"},
                                         Case{"topk:0.02", "doubling"},
                                         Case{"topk:0.02,int4", "shared"},
                                         Case{"topk:0.02", "two_level:balanced"},
                                         Case{"topk:0.02", "gather", ElementType::bf16}),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

// Whatever the schedule: all that this rank holds counts, once. Outside of the shards that it
// serves a rank of two levels holds nothing.
TEST_P(LookAheadOf, TakesTheWholeResidual) {
  constexpr std::size_t kCount = 5000;
  const Case c = GetParam();
  run_worlds(c.schedule, [&](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(
        transport,
        {.compressor = c.compressor, .schedule = c.schedule, .links = kGivenLinks, .min_bytes = 0});
    const std::vector<float> weights = make_gradient(Kind::normal, kCount, 0, 9, 9);
    std::size_t moved = 0;
    for (int step = 0; step < 3; ++step) {
      auto gradient = make_gradient(Kind::heavy_tailed, kCount, transport->rank(), step, 1);
      std::vector<std::uint16_t> half(kCount);
      kernels::narrow({}, ElementType::bf16, gradient, half);
      const Elements elements = c.type == ElementType::float32
                                    ? Elements(gradient)
                                    : Elements(half.data(), half.size(), c.type);
      reducer.all_reduce(elements, 1);
      const std::vector<float> residual = reducer.residual(1);
      const std::vector<float> ahead = reducer.look_ahead(1, weights, 0.75F);
      EXPECT_EQ(residual.size(), transport->size() == 1 ? residual.size() : kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        const float share = residual.empty() ? 0 : 0.75F * residual[i];
        EXPECT_EQ(ahead[i], weights[i] - share) << "position " << i;
        moved += ahead[i] != weights[i] ? 1 : 0;
      }
    }
    const auto nodes = static_cast<std::size_t>(reducer.topology().nodes());
    const auto size = static_cast<std::size_t>(transport->size());
    if (reducer.last().schedule == "dense") {
      EXPECT_EQ(moved, 0U);
    } else if (nodes == size || reducer.topology().rails() == 1) {
      EXPECT_GT(moved, kCount * 2);
    } else {
      EXPECT_GT(moved, 0U);
    }
  });
}

TEST(LookAheadUsage, AllocatesNothing) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AllReducer reducer(transport,
                       {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0});
    std::vector<float> gradient(1000, 1), weights(1000, 2), ahead(1000);
    reducer.all_reduce(gradient, 1);
    const std::uint64_t before = thread_allocations();
    reducer.look_ahead(1, weights, ahead, 1);
    reducer.look_ahead(2, weights, ahead, 1);
    EXPECT_EQ(thread_allocations() - before, 0U);
  });
}

// A parameter that travels dense holds nothing, alone or beside compressed ones; nor does one whose
// residual has travelled with a dense call.
TEST(LookAhead, CopiesTheWeightsOfWhatTravelsDense) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      Reducer reducer(transports[0],
                      {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 8000});
      const std::vector<float> weights = rising(3000, 1), few = rising(100, 1);
      std::vector<float> matrix = weights, bias = few, small = few;
      const Segment segments[] = {{.elements = matrix, .id = 1, .dimensions = 2},
                                  {.elements = bias, .id = 2, .dimensions = 1}};
      reducer.all_reduce(segments);
      reducer.all_reduce(small, 3);
      EXPECT_NE(reducer.look_ahead(1, weights, 1), weights);
      EXPECT_EQ(reducer.look_ahead(2, few, 1), few);
      EXPECT_EQ(reducer.look_ahead(3, few, 1), few);

      Reducer flushed(transports[1],
                      {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 8000});
      std::vector<float> first = few, other(3000);
      const Segment both[] = {{.elements = first, .id = 1}, {.elements = other, .id = 2}};
      flushed.all_reduce(both);
      EXPECT_NE(flushed.look_ahead(1, few, 1), few);
      flushed.all_reduce(first, 1);
      EXPECT_EQ(flushed.last().schedule, "dense");
      EXPECT_EQ(flushed.look_ahead(1, few, 1), few);
    });
  }
}

TEST(LookAheadUsage, WrongSharesAndSpans) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport,
                         {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0});
      std::vector<float> gradient(1000, 1), weights(1000, 2), ahead(1000, 3);
      reducer.all_reduce(gradient, 1);
      const auto error = [&](std::span<const float> from, std::span<float> to, float share) {
        return usage_error([&] { reducer.look_ahead(1, from, to, share); });
      };
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      for (const float wrong : {-1.0F, kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_TRUE(error(weights, ahead, wrong).starts_with("the share of a residual is a number"))
            << wrong;
      }
      EXPECT_EQ(error(std::span(weights).first(10), ahead, 1),
                "look_ahead has 10 weights and room for 1000");
      EXPECT_EQ(error(std::span(weights).first(10), std::span(ahead).first(10), 1),
                "parameter 1 has 1000 elements, not 10");
      std::vector<float> longer(1001, 2);
      EXPECT_EQ(error(std::span(longer).first(1000), std::span(longer).last(1000), 1),
                "look_ahead needs weights and result apart, or the same memory for both");
      EXPECT_EQ(error(std::span(longer).last(1000), std::span(longer).first(1000), 1),
                "look_ahead needs weights and result apart, or the same memory for both");
      EXPECT_EQ(ahead, std::vector<float>(1000, 3));
      EXPECT_EQ(longer, std::vector<float>(1001, 2));
      EXPECT_EQ(error(weights, ahead, 1), "");
    });
  }
}

// The second rank makes its call only when the first one has asked.
TEST(LookAheadUsage, NotWhileCallsAreInFlight) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      AllReducer reducer(transports[0],
                         {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0});
      std::vector<float> gradient(1000, 1), weights(1000, 2);
      const auto error = [&] {
        return usage_error([&] { reducer.look_ahead(1, weights, weights, 1); });
      };
      const auto meet = [&] {
        std::vector<char> all(static_cast<std::size_t>(transports[1]->size()));
        const char mine = 0;
        transports[1]->all_gather({}, std::as_bytes(std::span(&mine, 1)),
                                  std::as_writable_bytes(std::span(all)), Deadline::never());
      };
      Work work;
      if (transports[0]->rank() == 0) work = reducer.all_reduce_async(gradient, 1);
      if (transports[0]->rank() == 0 && transports[0]->size() > 1) {
        EXPECT_EQ(error(), "look_ahead was called while calls are in flight; wait for them");
        EXPECT_EQ(weights, std::vector<float>(1000, 2));
      }
      meet();
      if (transports[0]->rank() != 0) work = reducer.all_reduce_async(gradient, 1);
      work.wait();
      EXPECT_EQ(error(), "");
    });
  }
}

}  // namespace
}  // namespace winnow::tests
