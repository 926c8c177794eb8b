// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Calls in flight, with and without the AllReducer's own thread.
#include "tests/comm/call/async.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/ranks.hpp"
#include "tests/harness/thread_allocations.hpp"
#include "tests/laws/kept.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

INSTANTIATE_TEST_SUITE_P(Runners, Async, kRunners, name_of);

constexpr std::size_t kBuckets = 5;
constexpr std::uint64_t kCounts[kBuckets] = {20000, 1, 3001, 500, 7000};
const Options kOptions = {
    .compressor = "topk:0.05,int8:stochastic", .schedule = "least_bytes", .min_bytes = 1000};

std::vector<std::vector<float>> gradients(int rank, int step) {
  std::vector<std::vector<float>> all;
  for (std::size_t b = 0; b < kBuckets; ++b) {
    all.push_back(make_gradient(Kind::normal, kCounts[b], rank, step, b));
  }
  return all;
}

TEST_P(Async, CallsInFlightEqualBlockingOnesWhateverIsWaitedForFirst) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    const int rank = transport->rank();
    constexpr int kSteps = 4;
    std::vector<std::vector<std::vector<float>>> expected;
    {
      AllReducer reducer(transport, kOptions);
      for (int step = 0; step < kSteps; ++step) {
        expected.push_back(gradients(rank, step));
        for (std::size_t b = 0; b < kBuckets; ++b) reducer.all_reduce(expected.back()[b], b);
      }
    }
    AllReducer reducer(transport, kOptions);
    for (int step = 0; step < kSteps; ++step) {
      auto got = gradients(rank, step);
      std::vector<Work> works;
      for (std::size_t b = 0; b < kBuckets; ++b) {
        if (b == 3) {
          reducer.all_reduce(got[b], b);  // a blocking call takes its turn
        } else {
          works.push_back(reducer.all_reduce_async(got[b], b));
        }
      }
      if (rank % 2 == 1) std::ranges::reverse(works);
      for (Work& work : works) work.wait();
      for (std::size_t b = 0; b < kBuckets; ++b) {
        EXPECT_TRUE(same_bits(got[b], expected[static_cast<std::size_t>(step)][b]))
            << "step " << step << " bucket " << b;
      }
    }
    EXPECT_EQ(reducer.totals().calls, kSteps * kBuckets);
  });
}

TEST_P(Async, ErrorsComeOutOfTheWaitOfTheirCall) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    if (transport->size() == 1) return;
    AllReducer reducer(transport, kOptions);
    std::vector<float> good(3000, 1.0F), more(3000, 2.0F);
    // Ranks differ in the count of the second call.
    std::vector<float> bad(transport->rank() == 0 ? 4000 : 4001, 3.0F);
    Work first = reducer.all_reduce_async(good, 1);
    Work second = reducer.all_reduce_async(bad, 2);
    Work third = reducer.all_reduce_async(more, 3);
    EXPECT_NO_THROW(third.wait());
    EXPECT_THROW(second.wait(), UsageError);
    EXPECT_NO_THROW(second.wait());  // reported only once
    EXPECT_NO_THROW(first.wait());
    for (const float value : bad) EXPECT_EQ(value, 3.0F);
  });
}

TEST_P(Async, AfterACommErrorCallsInFlightTouchNothing) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    if (transport->size() == 1) return;
    AllReducer reducer(transport,
                       {.compressor = "topk:0.05", .schedule = "least_bytes", .min_bytes = 0});
    std::vector<float> values(3000, 1.0F), later(3000, 2.0F);
    reducer.all_reduce(values, 1);
    reducer.all_reduce(later, 2);
    std::ranges::fill(values, 1.0F);
    std::ranges::fill(later, 2.0F);
    tell_rank_0(*transport);
    transport->cut = true;
    Work first = reducer.all_reduce_async(values, 1);
    Work second = reducer.all_reduce_async(later, 2);
    EXPECT_THROW(first.wait(), CommError);
    EXPECT_THROW(second.wait(), CommError);
    for (const float value : values) EXPECT_EQ(value, 0.0F);
    for (const float value : later) EXPECT_EQ(value, 2.0F);
  });
}

/// Returns when all ranks have called it.
void meet(Transport& transport) {
  const std::byte word{};
  std::vector<std::byte> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather({}, {&word, 1}, all, Deadline::after(std::chrono::seconds(60)));
}

/// body(transports, bucket memory) on two ranks, or all of an MPI job: more threads would learn of
/// each other's missed deadlines. The last of three transports is for meet.
template <class Body>
void on_two_ranks(const Body& body) {
  Kept<std::vector<float>> buckets;
  run_ranks(2, 3,
            [&](std::span<std::shared_ptr<Transport>> transports) { body(transports, buckets); });
}

/// What the CommError of a call in flight says.
std::string error_of(Work& work) {
  try {
    work.wait();
  } catch (const CommError& error) {
    return error.what();
  }
  return "no CommError";
}

TEST_P(Async, WaitsForTwoReducersInDifferentOrderNeedAThread) {
  on_two_ranks([](std::span<std::shared_ptr<Transport>> transports, auto& buckets) {
    const int rank = transports[0]->rank();
    const auto ranks = static_cast<float>(transports[0]->size());
    const auto one = std::make_shared<ChosenRunner>(transports[0], GetParam());
    const auto two = std::make_shared<ChosenRunner>(transports[1], GetParam());
    const Options options{.compressor = "none", .op = ReduceOp::sum, .deadline = 60};
    AllReducer first(one, options), second(two, options);
    constexpr std::size_t kCount = 10'000;  // fewer would need no answer from a rank that waits
    std::vector<float>&values = buckets.make(kCount, 1.0F), &others = buckets.make(kCount, 2.0F);
    first.all_reduce(values, 1);
    second.all_reduce(others, 1);
    one->hurried = two->hurried = !one->allows_threads();
    std::array<Work, 2> works;
    works[0] = first.all_reduce_async(values, 1);
    works[1] = second.all_reduce_async(others, 1);
    if (rank == 0) std::ranges::reverse(works);
    if (one->allows_threads()) {
      for (Work& work : works) work.wait();
      EXPECT_EQ(values.back(), ranks * ranks);
      EXPECT_EQ(others.back(), 2 * ranks * ranks);
      return;
    }
    EXPECT_THAT(error_of(works[0]), testing::HasSubstr("in one order"));
    meet(*transports[2]);  // or a rank that begins its second wait ends another's first
    EXPECT_THROW(works[1].wait(), CommError);
  });
}

TEST_P(Async, AMissedDeadlineBlamesOnlyCallsOfOtherReducers) {
  on_two_ranks([](std::span<std::shared_ptr<Transport>> transports, auto& buckets) {
    const auto transport = std::make_shared<ChosenRunner>(transports[0], GetParam());
    AllReducer reducer(transport, {.compressor = "none", .deadline = 60});
    AllReducer idle(std::make_shared<ChosenRunner>(transports[1], GetParam()),
                    {.compressor = "none", .deadline = 60});
    std::vector<float>&values = buckets.make(100, 1.0F), &others = buckets.make(100, 2.0F);
    reducer.all_reduce(values, 1);
    idle.all_reduce_async(others, 1).wait();
    transport->hurried = true;
    if (transport->rank() != 0) {
      Work work = reducer.all_reduce_async(values, 1), next = reducer.all_reduce_async(values, 1);
      EXPECT_THAT(error_of(work), testing::AllOf(testing::HasSubstr("the deadline passed"),
                                                 testing::Not(testing::HasSubstr("in one order"))));
    }
    meet(*transports[2]);
  });
}

TEST_P(Async, TestBecomesTrue) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    AllReducer reducer(transport, kOptions);
    std::vector<float> one(5000, 1.0F), two(5000, 1.0F);
    Work first = reducer.all_reduce_async(one, 1);
    Work second = reducer.all_reduce_async(two, 2);
    while (!second.test()) std::this_thread::yield();
    EXPECT_TRUE(first.test());
    second.wait();
    first.wait();
    EXPECT_TRUE(first.test());
    EXPECT_TRUE(Work().test());
  });
}

TEST_P(Async, WhatIsNotWaitedForIsFinished) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    const auto size = static_cast<float>(transport->size());
    std::vector<float> dropped(100, 1.0F), replaced(100, 2.0F), pending(100, 3.0F);
    std::optional<Work> outlives;
    {
      AllReducer reducer(transport, {.compressor = "none", .op = ReduceOp::sum});
      { const Work work = reducer.all_reduce_async(dropped, 1); }
      EXPECT_EQ(dropped[99], size);
      Work work = reducer.all_reduce_async(replaced, 2);
      work = Work();
      EXPECT_EQ(replaced[99], 2 * size);
      outlives = reducer.all_reduce_async(pending, 3);
    }
    EXPECT_EQ(pending[99], 3 * size);
    EXPECT_NO_THROW(outlives->wait());
  });
}

TEST_P(Async, NothingIsAllocatedFor32CallsInFlightOfABucketThatIsKnown) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    AllReducer reducer(transport, {.compressor = "none"});
    std::vector<float> values(100, 1.0F);
    const std::vector<Segment> bucket{{.elements = std::span(values).first(40), .id = 1},
                                      {.elements = std::span(values).subspan(40), .id = 2}};
    reducer.all_reduce_async(bucket).wait();
    for (int step = 0; step < 3; ++step) {
      std::array<Work, 32> works;
      const std::uint64_t before = thread_allocations();
      for (Work& work : works) work = reducer.all_reduce_async(bucket);
      EXPECT_EQ(thread_allocations() - before, 0U);
      for (Work& work : works) work.wait();
      EXPECT_EQ(reducer.last().allocations, 0U);
    }
    std::vector<Work> more(33);
    const std::uint64_t before = reducer.totals().allocations;
    for (Work& work : more) work = reducer.all_reduce_async(bucket);
    for (Work& work : more) work.wait();
    if (!transport->allows_threads()) {  // otherwise some may have ended before others began
      EXPECT_GT(reducer.totals().allocations, before);
    }
  });
}

}  // namespace
}  // namespace winnow::tests
