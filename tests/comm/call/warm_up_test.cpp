// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Densities that fall in the first calls of a parameter.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::size_t kCount = 10000;

Options options_of(const char* schedule, const char* compressor = "topk:0.01:warmup=6") {
  return {.compressor = compressor,
          .schedule = schedule,
          .links = kGivenLinks,
          .trial_calls = 0,
          .op = ReduceOp::sum,
          .min_bytes = 0,
          .deadline = 60};
}

/// Whole numbers, so that sums are exact in any order.
std::vector<float> gradient_of(int rank, int call) {
  std::vector<float> gradient(kCount);
  const std::size_t begin = 131 * static_cast<std::size_t>(call) + static_cast<std::size_t>(rank);
  for (std::size_t i = 0; i < kCount; ++i) {
    gradient[i] = static_cast<float>((i * 7919 + begin) % 97);
  }
  return gradient;
}

class WarmUpOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schedules, WarmUpOf,
                         testing::Values("gather", "balanced", "two_level:gather"));

// 1/4, 1/16 and 1/64 for two calls each, then 1/100; a parameter that comes later warms up by
// itself, and nothing is lost on the way.
TEST_P(WarmUpOf, KeepsLessFromStageToStage) {
  const std::string schedule = GetParam();
  run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
    if (transport->size() == 1) return;
    Reducer reducer(transport, options_of(schedule.c_str()));
    std::vector<double> mass(2);  // in, less out, of parameters 1 and 2 on this rank
    for (int call = 0; call < 10; ++call) {
      const std::uint64_t kept[] = {2500, 625, 157, 100};
      for (const std::uint64_t id : {1U, 2U}) {
        const int since = id == 1 ? call : call - 3;
        if (since < 0) continue;
        std::vector<float> gradient = gradient_of(transport->rank(), call);
        for (const float element : gradient) mass[id - 1] += static_cast<double>(element);
        reducer.all_reduce(gradient, id);
        if (schedule == "gather") {
          EXPECT_EQ(reducer.last().kept, kept[std::min(since / 2, 3)]) << call;
        }
        for (const float element : gradient) {
          mass[id - 1] -= static_cast<double>(element) / transport->size();
        }
      }
    }
    for (const std::uint64_t id : {1U, 2U}) {
      for (const float element : reducer.residual(id)) mass[id - 1] -= static_cast<double>(element);
      std::vector<double> all(static_cast<std::size_t>(transport->size()));
      transport->all_gather({}, std::as_bytes(std::span(&mass[id - 1], 1)),
                            std::as_writable_bytes(std::span(all)), Deadline::never());
      double sum = 0;
      for (const double one : all) sum += one;
      EXPECT_NEAR(sum, 0, 1e-3) << "parameter " << id;
    }
  });
}

TEST(WarmUp, GoesOnAfterARestart) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<std::byte> state;
    for (const bool again : {false, true}) {
      AllReducer reducer(transport, options_of("gather"));
      if (again) reducer.load(state);
      for (int call = again ? 3 : 0; call < (again ? 7 : 3); ++call) {
        std::vector<float> gradient = gradient_of(transport->rank(), call);
        reducer.all_reduce(gradient, 1);
        const std::uint64_t kept[] = {2500, 2500, 625, 625, 157, 157, 100};
        const std::uint64_t expected = transport->size() > 1 ? kept[call] : kCount;
        EXPECT_EQ(reducer.last().kept, expected) << call;
      }
      state = reducer.save();
    }
  });
}

TEST(WarmUp, IsPartOfTheCompressorsName) {
  EXPECT_EQ(Options::parse("compressor=topk:0.010:warmup=06,int8").compressor,
            "topk:0.01:warmup=6,int8");
  EXPECT_EQ(Options::parse("compressor=topk:0.01:warmup=6:sums=0.030").compressor,
            "topk:0.01:sums=0.03:warmup=6");
  EXPECT_EQ(Options::parse("compressor=randomk:0.3:warmup=5").compressor, "randomk:0.3:warmup=5");
  for (const char* wrong :
       {"topk:0.01:", "topk:0.01:warmup=", "topk:0.01:warmup=0", "topk:0.01:warmup=-1",
        "topk:0.01:warmup=1.5", "topk:0.01:calls=5", "topk:0.01:warmup=5:warmup=5", "topk:warmup=5",
        "threshold:0.1:warmup=5", "none:warmup=5"}) {
    EXPECT_THROW(Options::parse(std::string("compressor=") + wrong), UsageError) << wrong;
  }
}

}  // namespace
}  // namespace winnow::tests
