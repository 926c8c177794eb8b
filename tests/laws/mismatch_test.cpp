// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that make different calls learn so, each of them, by a UsageError: at later calls, too,
// where some know the bucket and others do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/harness/schedules.hpp"
#include "tests/laws/kept.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::uint64_t kCount = 4000;

struct Odd {
  const char* name;
  std::vector<Parameter> theirs;  // what rank 0 calls, where all others call kKnown
  const char* said;               // by rank 0
};
const std::vector<Parameter> kKnown = {{1, kCount}};

class Mismatch : public testing::TestWithParam<std::string> {
 protected:
  static Options options() {
    // A deadline, so that no rank is lost in a native collective, which does not see an abort.
    return {.compressor = "topk:0.02",
            .schedule = GetParam(),
            .op = ReduceOp::sum,
            .min_bytes = 0,
            .deadline = 60};
  }
  static bool dense() { return GetParam() == "dense"; }
};

/// What a call says that it must refuse.
std::string usage_error(Reducer& reducer, TestBucket& bucket, std::optional<ReduceOp> op = {}) {
  try {
    reducer.all_reduce(bucket.segments(), op);
  } catch (const UsageError& error) {
    std::string text = error.what();
    EXPECT_EQ(text.find("usage error"), std::string::npos) << text;  // its type says so
    EXPECT_EQ(text.find("0x"), std::string::npos) << text;           // a hash says nothing
    const auto contains = [&](const char* words) { return text.find(words) != std::string::npos; };
    EXPECT_TRUE(!contains("no more parameters") || contains("parameter number")) << text;
    return text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a UsageError: " << error.what();
  }
  return "";
}

TEST_P(Mismatch, OfWhatOneRankCallsIsAUsageErrorOnAll) {
  for (const Odd& odd :
       {Odd{"count", {{1, kCount / 2}}, "parameter 1 had 4000 elements and now has 2000"},
        Odd{"id", {{9, kCount}}, "new here: a bucket of parameters 9 (4000 float32)"},
        Odd{"one more", {{1, kCount}, {2, 50}}, "parameters 1 (4000 float32), 2 (50 float32)"}}) {
    SCOPED_TRACE(odd.name);
    Kept<TestBucket> buckets;
    run_worlds(GetParam(), [&](const std::shared_ptr<Transport>& world) {
      if (world->size() == 1) return;
      Reducer reducer(world, options());
      TestBucket& known = buckets.make(kKnown);
      known.fill(Kind::normal, world->rank(), 0);
      reducer.all_reduce(known.segments());
      const std::vector<float> before = reducer.residual(1);
      const bool is_odd = world->rank() == 0;
      TestBucket& bucket = buckets.make(is_odd ? odd.theirs : kKnown);
      bucket.fill(Kind::normal, world->rank(), 1);
      const auto gradient = bucket.values();
      tell_rank_0(*world);  // that the first call has ended, which an abort would end, too
      const std::string said = usage_error(reducer, bucket);
      EXPECT_NE(said, "");
      if (is_odd) {
        EXPECT_NE(said.find(odd.said), std::string::npos) << said;
        EXPECT_EQ(bucket.values(), gradient);
        EXPECT_EQ(reducer.residual(1), before);
      } else if (!dense()) {
        for (const float value : bucket.values()[0]) EXPECT_EQ(value, 0.0F);
        const std::vector<float> residual = reducer.residual(1);
        for (std::size_t i = 0; i < kCount; ++i) {
          EXPECT_EQ(residual[i], before[i] + gradient[0][i]) << i;
        }
      }
      EXPECT_THROW(reducer.all_reduce(known.segments()), CommError);
    });
  }
}

TEST_P(Mismatch, OfTheOperationIsAUsageErrorOnAll) {
  Kept<TestBucket> buckets;
  run_worlds(GetParam(), [&](const std::shared_ptr<Transport>& world) {
    if (world->size() == 1) return;
    Reducer reducer(world, options());
    TestBucket& bucket = buckets.make(kKnown);
    bucket.fill(Kind::normal, world->rank(), 0);
    reducer.all_reduce(bucket.segments());
    tell_rank_0(*world);
    const ReduceOp op = world->rank() == 0 ? ReduceOp::average : ReduceOp::sum;
    EXPECT_NE(usage_error(reducer, bucket, op), "");
  });
}

TEST_P(Mismatch, OfTheOrderOfKnownBucketsIsAUsageErrorOnAll) {
  Kept<TestBucket> buckets;
  run_worlds(GetParam(), [&](const std::shared_ptr<Transport>& world) {
    if (world->size() == 1) return;
    Reducer reducer(world, options());
    TestBucket& first = buckets.make(kKnown);
    TestBucket& second = buckets.make(std::vector<Parameter>{{2, 3 * kCount}});
    for (TestBucket* bucket : {&first, &second}) {
      bucket->fill(Kind::normal, world->rank(), 0);
      reducer.all_reduce(bucket->segments());
    }
    tell_rank_0(*world);
    const std::string said = usage_error(reducer, world->rank() == 0 ? second : first);
    EXPECT_NE(said.find(world->rank() == 0 ? "known here: a bucket of parameters 2 (12000 float32)"
                                           : "known here: a bucket of parameters 1 (4000 float32)"),
              std::string::npos)
        << said;
    EXPECT_THROW(reducer.all_reduce(first.segments()), CommError);
  });
}

/// With checksum=all ranks compare each call, also of known buckets that travel without a header.
class CheckedCalls : public testing::TestWithParam<const char*> {
 protected:
  static Options options() {
    return Options::parse(std::string(GetParam()) +
                          " checksum=all op=sum min_bytes=0 deadline=60 links=pass=10GB/s");
  }
};

void fill(TestBucket& bucket, float value) {
  for (auto& parameter : bucket.values()) std::ranges::fill(parameter, value);
}

TEST_P(CheckedCalls, OfSwappedIdsAreAUsageErrorOnAllAndChangeNothing) {
  Kept<TestBucket> buckets;
  run_worlds(options().schedule, [&](const std::shared_ptr<Transport>& world) {
    const auto ranks = static_cast<float>(world->size());
    Reducer reducer(world, options());
    // The second parameter of each is exempt.
    TestBucket& first = buckets.make(std::vector<Parameter>{{1, kCount}, {3, 40, 1}});
    TestBucket& second = buckets.make(std::vector<Parameter>{{2, kCount}, {4, 40, 1}});
    const auto call_both = [&] {
      fill(first, 1);
      fill(second, 100);
      reducer.all_reduce(first.segments());
      reducer.all_reduce(second.segments());
      EXPECT_EQ(first.values()[1], std::vector<float>(40, ranks));
      EXPECT_EQ(second.values()[1], std::vector<float>(40, 100 * ranks));
      if (options().schedule != "dense") return;
      EXPECT_EQ(first.values()[0], std::vector<float>(kCount, ranks));
      EXPECT_EQ(second.values()[0], std::vector<float>(kCount, 100 * ranks));
    };
    call_both();
    for (int step = 0; step < 2 && world->size() > 1; ++step) {
      const bool swaps = world->rank() == world->size() - 1;
      TestBucket& bucket = swaps ? second : first;
      const std::vector<float> residual = reducer.residual(swaps ? 2 : 1);
      fill(bucket, 7);
      const std::string said = usage_error(reducer, bucket);
      const std::string here = swaps ? "parameters 2 (4000 float32), 4 (40 float32)"
                                     : "parameters 1 (4000 float32), 3 (40 float32)";
      EXPECT_NE(said.find(here), std::string::npos) << said;
      EXPECT_NE(said.find(" differs from rank "), std::string::npos) << said;
      EXPECT_NE(said.find(": parameter number 1, "), std::string::npos) << said;
      EXPECT_EQ(bucket.values()[0], std::vector<float>(kCount, 7));
      EXPECT_EQ(bucket.values()[1], std::vector<float>(40, 7));
      EXPECT_EQ(reducer.residual(swaps ? 2 : 1), residual);
      call_both();
    }
  });
}

// One rank calls what is new to it alone, or what none may call.
TEST_P(CheckedCalls, OfABucketThatOnlyOneRankMakesAreAUsageErrorOnAllAndChangeNothing) {
  Kept<TestBucket> buckets;
  run_worlds(options().schedule, [&](const std::shared_ptr<Transport>& world) {
    if (world->size() == 1) return;
    Reducer reducer(world, options());
    TestBucket& known = buckets.make(kKnown);
    fill(known, 1);
    reducer.all_reduce(known.segments());
    for (const std::vector<Parameter>& theirs :
         {std::vector<Parameter>{{9, kCount}}, {{1, kCount / 2}}, {{1, kCount}, {2, 50}}}) {
      TestBucket& bucket = world->rank() == 0 ? buckets.make(theirs) : known;
      EXPECT_NE(usage_error(reducer, bucket), "");
      reducer.all_reduce(known.segments());
    }
    EXPECT_NE(usage_error(reducer, known, world->rank() == 0 ? ReduceOp::average : ReduceOp::sum),
              "");
    reducer.all_reduce(known.segments());
  });
}

INSTANTIATE_TEST_SUITE_P(Laws, CheckedCalls,
                         testing::Values("schedule=dense", "schedule=gather compressor=topk:0.02",
                                         "schedule=balanced compressor=topk:0.02",
                                         "schedule=doubling compressor=topk:0.02",
                                         "schedule=shared compressor=topk:0.0625",
                                         "schedule=two_level:gather compressor=topk:0.02",
                                         "schedule=two_level:shared compressor=topk:0.0625",
                                         "schedule=auto compressor=topk:0.02"),
                         [](const testing::TestParamInfo<const char*>& options) {
                           std::string name = Options::parse(options.param).schedule;
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

/// Calls two known parameters of `T`, which one rank then swaps.
template <class T>
void swap_parameters(ReduceOp op) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [op](const std::shared_ptr<Transport>& world) {
      if (world->size() == 1) return;
      Reducer reducer(world, {.checksum = Checksum::all});
      std::vector<T> first(100, 2), second(100, 3);
      const std::vector<T> before = first;
      reducer.all_reduce(first, 1, op);
      reducer.all_reduce(second, 2, op);
      first = before;
      const bool swaps = world->rank() == 0;
      EXPECT_THROW(reducer.all_reduce(first, swaps ? 2 : 1, op), UsageError);
      EXPECT_EQ(first, before);
      reducer.all_reduce(first, 1, op);
      if (op == ReduceOp::maximum) {
        EXPECT_EQ(first, before);
      }
    });
  }
}

TEST(CheckedCallsOfOtherKinds, CompareTheirIds) {
  swap_parameters<float>(ReduceOp::minimum);
  swap_parameters<float>(ReduceOp::maximum);
  swap_parameters<double>(ReduceOp::sum);
  swap_parameters<std::int32_t>(ReduceOp::product);
  swap_parameters<std::int64_t>(ReduceOp::maximum);
  swap_parameters<std::uint8_t>(ReduceOp::sum);
}

TEST(CheckedReduceScatters, CompareTheirIds) {
  for (const char* schedule : {"dense", "gather"}) {
    for (const int ranks : rank_counts()) {
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& world) {
        if (world->size() == 1) return;
        Reducer reducer(world, {.compressor = "topk:0.1",
                                .schedule = schedule,
                                .op = ReduceOp::sum,
                                .min_bytes = 0,
                                .deadline = 60,
                                .checksum = Checksum::all});
        const std::vector<float> one(static_cast<std::size_t>(100 * world->size()), 1);
        std::vector<float> shard(100);
        reducer.reduce_scatter(one, shard, 1);
        reducer.reduce_scatter(one, shard, 2);
        std::ranges::fill(shard, 5);
        const bool swaps = world->rank() == 0;
        EXPECT_THROW(reducer.reduce_scatter(one, shard, swaps ? 2 : 1), UsageError);
        EXPECT_EQ(shard, std::vector<float>(100, 5));
        reducer.reduce_scatter(one, shard, 1);
        if (std::string(schedule) == "dense") {
          EXPECT_EQ(shard, std::vector<float>(100, static_cast<float>(world->size())));
        }
      });
    }
  }
}

TEST(CheckedCallsInFlight, CompareTheirIds) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& world) {
      if (world->size() == 1) return;
      AllReducer reducer(world, {.op = ReduceOp::sum, .deadline = 60, .checksum = Checksum::all});
      std::vector<float> first(100, 1), second(100, 100);
      reducer.all_reduce(first, 1);
      reducer.all_reduce(second, 2);
      std::ranges::fill(first, 1);
      std::ranges::fill(second, 100);
      const bool swaps = world->rank() == 0;
      Work one = reducer.all_reduce_async(swaps ? second : first, swaps ? 2 : 1);
      Work other = reducer.all_reduce_async(swaps ? first : second, swaps ? 1 : 2);
      EXPECT_THROW(one.wait(), UsageError);
      EXPECT_THROW(other.wait(), UsageError);
      EXPECT_EQ(first, std::vector<float>(100, 1));
      EXPECT_EQ(second, std::vector<float>(100, 100));
      reducer.all_reduce(first, 1);
      EXPECT_EQ(first, std::vector<float>(100, static_cast<float>(world->size())));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Laws, Mismatch, testing::ValuesIn(schedule_names()),
                         [](const testing::TestParamInfo<std::string>& schedule) {
                           std::string name = schedule.param;
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace winnow::tests
