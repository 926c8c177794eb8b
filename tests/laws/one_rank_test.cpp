// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// One rank alone: nothing travels, so nothing waits. By any schedule and compressor its sums are
// its gradients, and what a larger job had left goes into the first of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/harness/nodes_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::uint64_t kCount = 3000;

constexpr std::array kSchedules = {"dense",
                                   "gather",
                                   "balanced",
                                   "doubling",
                                   "shared",
                                   "two_level",
                                   "two_level:gather",
                                   "two_level:doubling",
                                   "two_level:balanced",
                                   "two_level:shared",
                                   "least_bytes",
                                   "auto"};
constexpr std::array kCompressors = {"none",           "topk:0.01",    "topk:0.01,int4:stochastic",
                                     "blocktopk:1/64", "randomk:0.01", "topk:0.02:warmup=8",
                                     "int8",           "sign",         "bf16"};

Options options_of(const std::string& schedule, const std::string& compressor) {
  return {.compressor = compressor,
          .schedule = schedule,
          .links = kGivenLinks,
          .op = ReduceOp::sum,
          .min_bytes = 0};
}

void expect_nothing_waits(const Reducer& reducer, std::uint64_t id) {
  for (const float left : reducer.residual(id)) ASSERT_EQ(left, 0.0F);
}

class OneRank : public testing::TestWithParam<const char*> {};

TEST_P(OneRank, IsExact) {
  run_bare_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    if (transport->size() > 1) return;  // an MPI job of more
    for (const char* compressor : kCompressors) {
      SCOPED_TRACE(compressor);
      Options options = options_of(GetParam(), compressor);
      options.max_part = 1024;
      const std::string of_parts = compressor;
      if (of_parts.starts_with("blocktopk")) options.max_part = 0;
      {
        Reducer reducer(transport, options);
        TestBucket bucket(std::vector<Parameter>{{1, kCount}, {2, 10, 1}, {3, 129}});
        for (int step = 0; step < 3; ++step) {
          bucket.fill(Kind::heavy_tailed, 0, step);
          const auto gradient = bucket.values();
          reducer.all_reduce(bucket.segments(), step == 1 ? ReduceOp::average : ReduceOp::sum);
          EXPECT_EQ(bucket.values(), gradient) << "step " << step;
          for (std::uint64_t id = 1; id <= 3; ++id) expect_nothing_waits(reducer, id);
        }
        std::vector<float> input = make_gradient(Kind::normal, kCount, 0, 0, 4), shard(kCount);
        if (!of_parts.starts_with("blocktopk")) {  // which needs whole blocks
          reducer.reduce_scatter(input, shard, 4);
          EXPECT_EQ(shard, input);
          expect_nothing_waits(reducer, 4);
        }
      }
      AllReducer reducer(transport, options);
      std::vector<std::vector<float>> gradients, given;
      std::vector<Work> works;
      for (std::uint64_t id = 0; id < 3; ++id) {
        gradients.push_back(make_gradient(Kind::normal, kCount, 0, 0, id));
      }
      given = gradients;
      if (bucket_place().place == Place::cuda) continue;  // these lie on the host
      for (std::uint64_t id = 0; id < 3; ++id) {
        works.push_back(reducer.all_reduce_async(gradients[id], id));
      }
      for (Work& work : works) work.wait();
      EXPECT_EQ(gradients, given);
    }
  });
}

// 16-bit elements, of one type and of two, with a rate that has to be rounded.
TEST_P(OneRank, KeepsHalves) {
  run_bare_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    if (transport->size() > 1) return;
    Reducer reducer(transport, options_of(GetParam(), "topk:0.01"));
    for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
      std::vector<std::uint16_t> halves(kCount);
      for (std::size_t i = 0; i < kCount; ++i)
        halves[i] = static_cast<std::uint16_t>(0x3c00 + i % 700);
      const auto given = halves;
      const auto id = static_cast<std::uint64_t>(type);
      for (int step = 0; step < 2; ++step) {
        reducer.all_reduce(Elements(halves.data(), kCount, type), id);
        EXPECT_EQ(halves, given);
        expect_nothing_waits(reducer, id);
      }
    }
  });
}

// What two ranks, or two nodes of two, had not sent yet goes into the first sum, once.
TEST_P(OneRank, TakesOverWhatALargerJobLeft) {
  const std::string schedule = GetParam();
  if (bucket_place().place == Place::cuda) return;  // states are of either place
  const int ranks = schedule.starts_with("two_level") ? 4 : 2;
  std::vector<std::vector<std::byte>> states(static_cast<std::size_t>(ranks));
  std::vector<double> waits(kCount);
  std::mutex mutex;
  bool alone = true;
  run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
    if (transport->size() != ranks) return;
    const auto nodes = std::make_shared<NodesTransport>(transport, ranks == 4 ? 2 : 0);
    AllReducer reducer(nodes, options_of(schedule, "topk:0.01"));
    std::vector<float> gradient(kCount);
    for (std::size_t i = 0; i < kCount; ++i) gradient[i] = static_cast<float>((i * 37) % 1009);
    for (int step = 0; step < 2; ++step) {
      auto copy = gradient;
      reducer.all_reduce(copy, 1);
    }
    const std::lock_guard lock(mutex);
    states[static_cast<std::size_t>(transport->rank())] = reducer.save();
    const std::span<const float> residual = reducer.residual(1);
    for (std::size_t i = 0; i < residual.size(); ++i) waits[i] += static_cast<double>(residual[i]);
    alone = false;
  });
  if (alone) return;  // an MPI job of another size
  run_bare_ranks(1, [&](const std::shared_ptr<Transport>& transport) {
    if (transport->size() > 1) return;
    AllReducer reducer(transport, options_of(schedule, "topk:0.01"));
    std::vector<std::span<const std::byte>> all(states.begin(), states.end());
    reducer.load(all);
    for (int step = 0; step < 2; ++step) {
      std::vector<float> gradient(kCount, 1);
      reducer.all_reduce(gradient, 1);
      for (std::size_t i = 0; i < kCount; ++i) {
        const double expected = step == 0 ? 1 + waits[i] : 1;  // small integers: exact
        ASSERT_EQ(static_cast<double>(gradient[i]), expected) << i << " of step " << step;
      }
      for (const float left : reducer.residual(1)) ASSERT_EQ(left, 0.0F);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Schedules, OneRank, testing::ValuesIn(kSchedules),
                         [](const testing::TestParamInfo<const char*>& schedule) {
                           std::string name = schedule.param;
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

// Others that some schedules refuse on any number of ranks.
TEST(OneRankOfOpenSizes, IsExact) {
  run_bare_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    if (transport->size() > 1) return;
    for (const char* schedule : {"gather", "doubling", "balanced", "two_level:gather", "auto"}) {
      for (const char* compressor : {"threshold:1", "threshold,int8", "topk:0.01,mean"}) {
        const bool refused = std::string_view(schedule) == "balanced" &&
                             std::string_view(compressor).ends_with("mean");
        Reducer reducer(transport, options_of(schedule, compressor));
        auto gradient = make_gradient(Kind::normal, kCount, 0, 0, 1);
        const auto given = gradient;
        if (refused) {
          EXPECT_THROW(reducer.all_reduce(gradient, 1), UsageError);
        } else {
          reducer.all_reduce(gradient, 1);
          expect_nothing_waits(reducer, 1);
        }
        EXPECT_EQ(gradient, given) << schedule << ' ' << compressor;
      }
    }
  });
}

}  // namespace
}  // namespace winnow::tests
