// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Steps that are discarded, and residuals that are scaled.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/harness/usage_error.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kCount = 3000;

Options options_of(const char* compressor, const char* schedule) {
  return {.compressor = compressor,
          .schedule = schedule,
          .links = kGivenLinks,
          .trial_calls = 0,
          .min_bytes = 8000,
          .deadline = 60};
}

/// A call of one parameter; `factor` is put into one gradient of the last rank.
std::vector<float> call(Reducer& reducer, const Transport& transport, std::uint64_t id, int step,
                        float factor = 1) {
  auto gradient = make_gradient(Kind::normal, kCount, transport.rank(), step, id);
  if (transport.rank() == transport.size() - 1) gradient[7] *= factor;
  reducer.all_reduce(gradient, id);
  return gradient;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Case {
  const char* compressor;
  const char* schedule;
  const char* precondition = "none";
};

class StepOf : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Ways, StepOf,
                         testing::Values(Case{"topk:0.02", "gather"},
                                         Case{"topk:0.02,int8", "balanced"},
                                         Case{"topk:0.02", "doubling"}, Case{"topk:0.02", "shared"},
                                         Case{"int4", "balanced"}, Case{"threshold:2", "gather"},
                                         Case{"none", "dense"},
                                         Case{"topk:0.02", "gather", "second_moment:0.9"},
                                         Case{"none", "dense", "second_moment:0.9"},
                                         Case{"topk:0.02,int8", "two_level:balanced"}),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

// Parameter 1 is called twice in the step that is discarded, 2 is new there and 3 meets an infinite
// gradient; 4 is not called. After it, everything goes on as if the step had never been.
TEST_P(StepOf, IsDiscardedWithoutATrace) {
  const auto& [compressor, schedule, precondition] = GetParam();
  Options options = options_of(compressor, schedule);
  options.precondition = precondition;
  run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
    const auto run = [&](bool discards) {
      Reducer reducer(transport, options);
      std::vector<std::vector<float>> seen;
      for (int step = 0; step < 6; ++step) {
        if (discards) reducer.begin_step();
        if (step == 3 && discards) {
          call(reducer, *transport, 1, 100);
          call(reducer, *transport, 2, 100);
          call(reducer, *transport, 3, 100, kInfinity);
          call(reducer, *transport, 1, 101);
          reducer.discard_step();
        }
        for (const std::uint64_t id : {1U, 2U, 3U, 4U}) {
          if (id != 2 || step >= 3) seen.push_back(call(reducer, *transport, id, step));
        }
      }
      for (const std::uint64_t id : {1U, 2U, 3U, 4U}) seen.push_back(reducer.residual(id));
      return seen;
    };
    const auto with = run(true), without = run(false);
    ASSERT_EQ(with.size(), without.size());
    for (std::size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(same_bits(with[i], without[i])) << i;
  });
}

// discard_step restores the parameters that it is given, in buckets with others or alone, and no
// other one. It ignores ids that no call has had.
TEST_P(StepOf, IsDiscardedOfSomeParameters) {
  const auto& [compressor, schedule, precondition] = GetParam();
  Options options = options_of(compressor, schedule);
  options.precondition = precondition;
  run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, options);
    const auto step_of = [&](int step) {
      auto first = make_gradient(Kind::normal, kCount, transport->rank(), step, 1);
      auto second = make_gradient(Kind::normal, kCount, transport->rank(), step, 2);
      reducer.all_reduce(
          std::vector<Segment>{{.elements = first, .id = 1}, {.elements = second, .id = 2}});
      call(reducer, *transport, 3, step);
    };
    step_of(0);
    std::vector<std::vector<float>> before, after;
    const std::vector<std::uint64_t> ids{1, 2, 3};
    for (const std::uint64_t id : ids) before.push_back(reducer.residual(id));
    reducer.begin_step();
    step_of(1);
    for (const std::uint64_t id : ids) after.push_back(reducer.residual(id));
    reducer.discard_step(std::vector<std::uint64_t>{99});
    for (const std::uint64_t id : ids) EXPECT_TRUE(same_bits(reducer.residual(id), after[id - 1]));
    reducer.discard_step(std::vector<std::uint64_t>{3, 1});
    EXPECT_TRUE(same_bits(reducer.residual(1), before[0]));
    EXPECT_TRUE(same_bits(reducer.residual(2), after[1]));
    EXPECT_TRUE(same_bits(reducer.residual(3), before[2]));
    step_of(2);  // in the same step, so that the second stays as it was kept
    reducer.discard_step();
    EXPECT_TRUE(same_bits(reducer.residual(2), before[1]));
  });
}

// What was not sent counts twice as much, also if it comes back afterwards; what is new does not.
TEST(Step, ResidualsAreScaled) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      Reducer reducer(transport, options_of("topk:0.02", "gather"));
      call(reducer, *transport, 1, 0);
      auto expected = reducer.residual(1);
      reducer.begin_step();
      call(reducer, *transport, 1, 1);
      call(reducer, *transport, 2, 1);
      auto of_two = reducer.residual(2);
      for (auto* residual : {&expected, &of_two}) {
        for (float& element : *residual) element *= 2;
      }
      reducer.scale_residuals(2);
      EXPECT_EQ(reducer.residual(2), of_two);
      reducer.discard_step();
      EXPECT_EQ(reducer.residual(1), expected);
      EXPECT_EQ(reducer.residual(2), std::vector<float>(of_two.size()));
    });
  }
}

TEST(StepUsage, WhatCannotBe) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, options_of("topk:0.02", "gather"));
      EXPECT_EQ(usage_error([&] { reducer.discard_step(); }),
                "discard_step comes after begin_step");
      EXPECT_EQ(usage_error([&] { reducer.discard_step({}); }),
                "discard_step comes after begin_step");
      for (const float wrong : {0.0F, -1.0F, kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_TRUE(usage_error([&] {
                      reducer.scale_residuals(wrong);
                    }).starts_with("residuals are scaled by a number above 0"));
      }
    });
  }
}

// The other ranks make their call only when the first one has asked.
TEST(StepUsage, NotWhileCallsAreInFlight) {
  for (const int ranks : rank_counts()) {
    if (ranks == 1) continue;
    run_ranks(ranks, 2, [](std::span<std::shared_ptr<Transport>> transports) {
      AllReducer reducer(transports[0], options_of("topk:0.02", "gather"));
      std::vector<float> gradient(kCount, 1);
      const bool first = transports[0]->rank() == 0;
      Work work;
      if (first) {
        work = reducer.all_reduce_async(gradient, 1);
        EXPECT_THROW(reducer.begin_step(), UsageError);
        EXPECT_THROW(reducer.discard_step(), UsageError);
        EXPECT_THROW(reducer.scale_residuals(2), UsageError);
      }
      std::vector<char> all(static_cast<std::size_t>(transports[1]->size()));
      const char mine = 0;
      transports[1]->all_gather({}, std::as_bytes(std::span(&mine, 1)),
                                std::as_writable_bytes(std::span(all)), Deadline::never());
      if (!first) work = reducer.all_reduce_async(gradient, 1);
      work.wait();
      EXPECT_NO_THROW(reducer.begin_step());
    });
  }
}

}  // namespace
}  // namespace winnow::tests
