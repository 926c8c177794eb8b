// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Callbacks of calls in flight, and Works that are detached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>

#include "tests/comm/call/async.hpp"
#include "tests/harness/ranks.hpp"

namespace winnow::tests {
namespace {

class Completion : public Async {};
INSTANTIATE_TEST_SUITE_P(Runners, Completion, kRunners, name_of);

const Options kSum = {.compressor = "none", .op = ReduceOp::sum};

/// The kind of an error that a callback was given.
std::string kind_of(const std::exception_ptr& error) {
  if (!error) return "none";
  try {
    std::rethrow_exception(error);
  } catch (const UsageError&) {
    return "UsageError";
  } catch (const CommError&) {
    return "CommError";
  } catch (...) {
    return "another";
  }
}

/// A callback that adds the kind of its error to `kinds`.
auto into(std::vector<std::string>& kinds) {
  return [&kinds](const std::exception_ptr& error) { kinds.push_back(kind_of(error)); };
}

TEST_P(Completion, CallbacksRunInTheOrderOfCallsWhereTheyRun) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    if (transport->size() == 1) return;  // nothing holds up its calls
    const auto ranks = static_cast<float>(transport->size());
    std::vector<std::vector<float>> buckets(4, std::vector<float>(1000, 1.0F));
    std::vector<int> order;
    std::vector<std::thread::id> threads;
    AllReducer reducer(transport, kSum);
    std::vector<Work> works;
    {
      const std::lock_guard held(transport->gate);
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        works.push_back(reducer.all_reduce_async(buckets[b], b));
      }
      for (const std::size_t b : {2U, 0U, 3U, 1U}) {
        for (const int again : {0, 1}) {
          works[b].on_complete([&, b, again](const std::exception_ptr& error) {
            EXPECT_EQ(kind_of(error), "none");
            EXPECT_EQ(buckets[b].back(), ranks);
            order.push_back(2 * static_cast<int>(b) + again);
            threads.push_back(std::this_thread::get_id());
          });
        }
      }
      EXPECT_TRUE(order.empty());
    }
    reducer.synchronize();
    EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    for (const std::thread::id thread : threads) {
      EXPECT_EQ(thread == std::this_thread::get_id(), !transport->allows_threads());
    }
    for (Work& work : works) work.wait();
    EXPECT_EQ(order.size(), 8U);
  });
}

TEST_P(Completion, ACallThatIsDoneCallsBackAtOnce) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    AllReducer reducer(transport, kSum);
    std::vector<float> values(100, 1.0F);
    Work work = reducer.all_reduce_async(values, 1);
    while (!work.test()) std::this_thread::yield();
    std::vector<std::string> kinds;
    const std::thread::id here = std::this_thread::get_id();
    work.on_complete([&](const std::exception_ptr& error) {
      kinds.push_back(kind_of(error));
      EXPECT_EQ(std::this_thread::get_id(), here);
    });
    EXPECT_THAT(kinds, testing::ElementsAre("none"));
    work.wait();
    work.on_complete(into(kinds));
    Work().on_complete(into(kinds));
    EXPECT_THAT(kinds, testing::ElementsAre("none", "none", "none"));
    EXPECT_THROW(Work().on_complete(nullptr), UsageError);
  });
}

TEST_P(Completion, FailedCallsCallBackOnceWithTheirError) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    if (transport->size() == 1) return;
    AllReducer reducer(transport, kSum);
    std::vector<float> first(3000, 1.0F), second(3000, 1.0F);
    std::vector<float> differs(transport->rank() == 0 ? 4000 : 4001, 3.0F);
    reducer.all_reduce(first, 1);
    std::vector<std::string> kinds;
    Work refused = reducer.all_reduce_async(differs, 2);
    refused.on_complete(into(kinds));
    EXPECT_THROW(refused.wait(), UsageError);
    reducer.synchronize();
    EXPECT_THAT(kinds, testing::ElementsAre("UsageError"));

    tell_rank_0(*transport);
    transport->cut = true;
    Work fails = reducer.all_reduce_async(first, 1);
    Work follows = reducer.all_reduce_async(second, 3);
    fails.on_complete(into(kinds));
    follows.on_complete(into(kinds));
    EXPECT_THROW(follows.wait(), CommError);
    EXPECT_THROW(reducer.synchronize(), CommError);
    EXPECT_THAT(kinds, testing::ElementsAre("UsageError", "CommError", "CommError"));
    fails.on_complete(into(kinds));  // not waited for yet
    EXPECT_THAT(kinds, testing::SizeIs(4));
    EXPECT_EQ(kinds.back(), "CommError");
    EXPECT_THROW(fails.wait(), CommError);
  });
}

TEST_P(Completion, ACallbackMayDropWorksButNotUseTheReducer) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    if (transport->size() == 1) return;  // nothing holds up its calls
    const auto ranks = static_cast<float>(transport->size());
    AllReducer reducer(transport, kSum);
    std::vector<float> first(1000, 1.0F), second(1000, 2.0F), third(100, 3.0F);
    std::optional<Work> own, next;
    int calls = 0;
    {
      const std::lock_guard held(transport->gate);
      own = reducer.all_reduce_async(first, 1);
      next = reducer.all_reduce_async(second, 2);
      own->on_complete([&](const std::exception_ptr&) {
        EXPECT_THROW(reducer.all_reduce(third, 3), UsageError);
        EXPECT_THROW((void)reducer.all_reduce_async(third, 3), UsageError);
        EXPECT_THROW(reducer.synchronize(), UsageError);
        EXPECT_THROW((void)reducer.save(), UsageError);
        EXPECT_FALSE(next->test());
        EXPECT_THROW(next->wait(), UsageError);
        own.reset();
        next.reset();
        ++calls;
      });
    }
    reducer.synchronize();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(second[999], 2 * ranks);
    own.reset();
    reducer.all_reduce(third, 3);
    EXPECT_EQ(third[99], 3 * ranks);
  });
}

TEST_P(Completion, TheDestructorRunsCallbacks) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    std::vector<float> values(1000, 1.0F), others(1000, 1.0F);
    std::vector<std::string> kinds;
    {
      AllReducer reducer(transport, kSum);
      const std::lock_guard held(transport->gate);
      for (std::vector<float>* bucket : {&values, &others}) {
        const std::uint64_t id = bucket == &values ? 1 : 2;
        Work work = reducer.all_reduce_async(*bucket, id);
        work.on_complete(into(kinds));
        work.detach();
        EXPECT_TRUE(work.test());
      }
    }
    EXPECT_THAT(kinds, testing::ElementsAre("none", "none"));
    EXPECT_EQ(others[999], static_cast<float>(transport->size()));
  });
}

TEST_P(Completion, ADetachedCallGoesOn) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    const auto ranks = static_cast<float>(transport->size());
    AllReducer reducer(transport, kSum);
    std::vector<float> values(1000, 1.0F), others(1000, 2.0F);
    std::uint64_t allocations = 0;
    for (int step = 0; step < 40; ++step) {  // more than there are slots
      std::ranges::fill(values, 1.0F);
      Work work;
      {
        const std::lock_guard held(transport->gate);  // the call cannot end
        work = reducer.all_reduce_async(values, 1);
        work.detach();
        { const Work dropped = std::move(work); }
      }
      if (step % 2 == 0) reducer.all_reduce_async(others, 2).wait();
      reducer.synchronize();
      EXPECT_EQ(values[999], ranks);
      std::ranges::fill(others, 2.0F);
      if (step == 2) allocations = reducer.totals().allocations;
    }
    EXPECT_EQ(reducer.totals().calls, 60U);
    EXPECT_EQ(reducer.totals().allocations, allocations);
  });
}

TEST_P(Completion, SynchronizeThrowsTheUsageErrorOfADetachedCall) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    if (transport->size() == 1) return;
    AllReducer reducer(transport, kSum);
    std::vector<float> good(3000, 1.0F), more(3000, 2.0F);
    std::vector<float> bad(transport->rank() == 0 ? 4000 : 4001, 3.0F);
    reducer.all_reduce(good, 1);
    reducer.all_reduce_async(bad, 2).detach();
    EXPECT_NO_THROW(reducer.all_reduce(more, 3));  // other calls go on
    EXPECT_THROW(reducer.synchronize(), UsageError);
    EXPECT_NO_THROW(reducer.synchronize());
    for (const float value : bad) EXPECT_EQ(value, 3.0F);

    Work done = reducer.all_reduce_async(bad, 2);
    while (!done.test()) std::this_thread::yield();
    done.detach();
    EXPECT_THROW(reducer.synchronize(), UsageError);
    Work asked = reducer.all_reduce_async(bad, 2);
    EXPECT_THROW(asked.wait(), UsageError);
    EXPECT_NO_THROW(reducer.synchronize());
  });
}

TEST_P(Completion, LaterCallsThrowTheCommErrorOfADetachedCall) {
  on_ranks([](const std::shared_ptr<ChosenRunner>& transport) {
    if (transport->size() == 1) return;
    AllReducer reducer(transport, kSum);
    std::vector<float> values(3000, 1.0F), later(3000, 2.0F);
    reducer.all_reduce(values, 1);
    tell_rank_0(*transport);
    transport->cut = true;
    std::vector<std::string> kinds;
    Work work = reducer.all_reduce_async(values, 1);
    work.on_complete(into(kinds));
    work.detach();
    EXPECT_THROW(reducer.all_reduce(later, 2), CommError);
    EXPECT_THROW(reducer.synchronize(), CommError);
    EXPECT_THAT(kinds, testing::ElementsAre("CommError"));
    for (const float value : later) EXPECT_EQ(value, 2.0F);
  });
}

}  // namespace
}  // namespace winnow::tests
