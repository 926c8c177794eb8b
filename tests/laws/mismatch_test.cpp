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

class Mismatch : public testing::TestWithParam<const char*> {
 protected:
  static Options options() {
    // A deadline, so that no rank is lost in a native collective, which does not see an abort.
    return {.compressor = "topk:0.02",
            .schedule = GetParam(),
            .op = ReduceOp::sum,
            .min_bytes = 0,
            .deadline = 60};
  }
  static bool dense() { return std::string(GetParam()) == "dense"; }
};

/// What a call says that it must refuse.
std::string usage_error(Reducer& reducer, TestBucket& bucket, std::optional<ReduceOp> op = {}) {
  try {
    reducer.all_reduce(bucket.segments(), op);
  } catch (const UsageError& error) {
    return error.what();
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

INSTANTIATE_TEST_SUITE_P(Laws, Mismatch,
                         testing::Values("gather", "balanced", "doubling", "shared", "dense",
                                         "two_level:gather", "two_level:balanced",
                                         "two_level:doubling", "two_level:shared"),
                         [](const testing::TestParamInfo<const char*>& schedule) {
                           std::string name = schedule.param;
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace winnow::tests
