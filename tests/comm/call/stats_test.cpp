// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Checks Stats: sums, measured values against plain loops, and the table.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/plan/bucket.hpp"
#include "comm/stats/measure.hpp"
#include "comm/stats/table.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/recorded_writes.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// Two parameters that travel compressed and one that is exempt.
const std::vector<Parameter> kMixed = {{1, 30000}, {3, 2000}, {2, 300, 1}};

void expect_equal_on_all_ranks(Transport& transport, std::uint64_t value) {
  Workspace workspace;
  const Exec exec{.workspace = &workspace};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather(exec, std::as_bytes(std::span(&value, 1)),
                       std::as_writable_bytes(std::span(all)),
                       Deadline::after(std::chrono::seconds(60)));
  for (const std::uint64_t other : all) EXPECT_EQ(other, value);
}

class Measured : public testing::TestWithParam<const char*> {
  const RecordedErrors tables_;  // ignored here
};

TEST_P(Measured, IsWhatPlainLoopsSay) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, Options::parse(GetParam()));
      TestBucket bucket(kMixed);
      for (int step = 0; step < 3; ++step) {
        bucket.fill(Kind::normal, transport->rank(), step);
        reducer.all_reduce(bucket.segments());
        const Stats last = reducer.last();
        std::uint64_t count = 0, nonzero = 0;
        double squares = 0;
        for (const Segment& segment : bucket.segments()) {
          count += segment.elements.size();
          for (const float element : segment.elements.floats()) nonzero += element != 0 ? 1U : 0U;
          for (const double left : reducer.residual(segment.id)) squares += left * left;
        }
        EXPECT_EQ(last.measured, count);
        EXPECT_EQ(last.nonzero, nonzero);
        EXPECT_EQ(last.density_after(), static_cast<double>(nonzero) / static_cast<double>(count));
        EXPECT_EQ(last.residual_norm, std::sqrt(squares));
      }
    });
  }
}

TEST_P(Measured, TheDigestIsOneOfTheResult) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto digest_of = [&](int step, std::size_t changed, float by) {
        AllReducer reducer(transport, Options::parse(GetParam()));
        TestBucket bucket(kMixed);
        bucket.fill(Kind::normal, transport->rank(), step);
        if (transport->rank() == 0) bucket.values()[2][changed] += by;
        reducer.all_reduce(bucket.segments());
        const std::uint64_t digest = reducer.last().digest;
        expect_equal_on_all_ranks(*transport, digest);
        EXPECT_EQ(reducer.totals().digest, digest);
        bucket.fill(Kind::normal, transport->rank(), 7);
        reducer.all_reduce(bucket.segments());
        expect_equal_on_all_ranks(*transport, reducer.totals().digest);
        EXPECT_NE(reducer.totals().digest, reducer.last().digest);
        return digest;
      };
      const std::uint64_t first = digest_of(0, 0, 0);
      EXPECT_NE(first, 0U);
      EXPECT_EQ(first, digest_of(0, 0, 0));
      EXPECT_NE(first, digest_of(1, 0, 0));
      EXPECT_NE(first, digest_of(0, 0, 1));
      EXPECT_NE(digest_of(0, 0, 1), digest_of(0, 299, 1));
      const float nan = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(digest_of(0, 0, nan), digest_of(0, 0, -nan));
    });
  }
}

TEST_P(Measured, TotalsAreTheSumsOfBucketsAndOfCalls) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, Options::parse(GetParam()));
      EXPECT_TRUE(reducer.bucket_stats().empty());
      TestBucket mixed(kMixed), dense({{7, 500, 1}, {8, 20, 1}});
      const auto add = [](Stats& sum, const Stats& stats) {
        sum.calls += stats.calls;
        sum.count += stats.count;
        sum.kept += stats.kept;
        sum.wire_bytes += stats.wire_bytes;
        sum.network_bytes += stats.network_bytes;
        sum.dense_wire_bytes += stats.dense_wire_bytes;
        sum.select_seconds += stats.select_seconds;
        sum.encode_seconds += stats.encode_seconds;
        sum.exchange_seconds += stats.exchange_seconds;
        sum.wait_seconds += stats.wait_seconds;
        sum.add_seconds += stats.add_seconds;
        sum.poisoned += stats.poisoned;
        sum.clipped += stats.clipped;
        sum.allocations += stats.allocations;
        sum.measured += stats.measured;
        sum.nonzero += stats.nonzero;
        sum.dense_seconds += stats.dense_seconds;
      };
      Stats calls, buckets, schedules;
      for (int step = 0; step < 4; ++step) {
        for (TestBucket* bucket : {&mixed, &dense, &mixed}) {
          bucket->fill(Kind::normal, transport->rank(), step);
          if (step == 2) bucket->values()[0][0] = std::numeric_limits<float>::infinity();
          reducer.all_reduce(bucket->segments());
          add(calls, reducer.last());
        }
      }
      const std::vector<BucketStats> all = reducer.bucket_stats();
      ASSERT_EQ(all.size(), 2U);
      EXPECT_EQ(all[0].totals.calls, 8U);
      EXPECT_EQ(all[0].count, 32300U);
      EXPECT_EQ(all[0].compressed, 32000U);
      EXPECT_EQ(all[0].totals.poisoned, 2U);
      EXPECT_EQ(all[1].totals.calls, 4U);
      EXPECT_EQ(all[1].count, 520U);
      EXPECT_EQ(all[1].compressed, 0U);
      EXPECT_EQ(all[1].totals.schedule, "dense");
      for (const BucketStats& bucket : all) add(buckets, bucket.totals);
      for (const Stats& by_one : reducer.schedule_stats()) add(schedules, by_one);

      const Stats totals = reducer.totals();
      for (const Stats& sum : {calls, buckets, schedules}) {
        EXPECT_EQ(sum.calls, totals.calls);
        EXPECT_EQ(sum.count, totals.count);
        EXPECT_EQ(sum.kept, totals.kept);
        EXPECT_EQ(sum.wire_bytes, totals.wire_bytes);
        EXPECT_EQ(sum.network_bytes, totals.network_bytes);
        EXPECT_EQ(sum.dense_wire_bytes, totals.dense_wire_bytes);
        EXPECT_EQ(sum.poisoned, totals.poisoned);
        EXPECT_EQ(sum.clipped, totals.clipped);
        EXPECT_EQ(sum.allocations, totals.allocations);
        EXPECT_EQ(sum.measured, totals.measured);
        EXPECT_EQ(sum.nonzero, totals.nonzero);
        // The sums are doubles, added up in another order.
        EXPECT_NEAR(sum.select_seconds, totals.select_seconds, 1e-9);
        EXPECT_NEAR(sum.encode_seconds, totals.encode_seconds, 1e-9);
        EXPECT_NEAR(sum.exchange_seconds, totals.exchange_seconds, 1e-9);
        EXPECT_NEAR(sum.wait_seconds, totals.wait_seconds, 1e-9);
        EXPECT_NEAR(sum.add_seconds, totals.add_seconds, 1e-9);
        EXPECT_NEAR(sum.dense_seconds, totals.dense_seconds, 1e-9);
      }
    });
  }
}

// No moment is counted twice.
TEST_P(Measured, StagesAreWithinTheWhole) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, Options::parse(GetParam()));
      TestBucket bucket(kMixed);
      for (int step = 0; step < 3; ++step) {
        bucket.fill(Kind::normal, transport->rank(), step);
        const auto begin = std::chrono::steady_clock::now();
        reducer.all_reduce(bucket.segments());
        const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
        const Stats last = reducer.last();
        EXPECT_GT(last.select_seconds, 0);
        EXPECT_GT(last.encode_seconds, 0);
        EXPECT_GT(last.exchange_seconds, 0);
        if (transport->size() > 1) {
          EXPECT_GT(last.wait_seconds, 0);
        }
        EXPECT_GT(last.add_seconds, 0);
        const double stages = last.select_seconds + last.encode_seconds + last.exchange_seconds +
                              last.wait_seconds + last.add_seconds;
        EXPECT_LE(stages, whole.count() + 1e-9);  // for the rounding of doubles
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stats, Measured,
    testing::Values("schedule=gather compressor=topk:0.01 stats=2",
                    "schedule=gather compressor=topk:0.05,int8 stats=2 min_bytes=4000",
                    "schedule=gather compressor=int4 stats=2 min_bytes=4000",
                    "schedule=doubling compressor=topk:0.01 stats=2",
                    "schedule=balanced compressor=topk:0.01 stats=2 min_bytes=4000",
                    "schedule=balanced compressor=int8:stochastic stats=2 min_bytes=4000"),
    [](const auto& test) { return "case" + std::to_string(test.index); });

TEST(Stats, WhatIsNotMeasuredSaysSo) {
  for (const int ranks : rank_counts()) {
    const RecordedErrors tables;
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      // Each rank decides for itself whether to measure, print or log.
      AllReducer reducer(transport, {.schedule = "gather",
                                     .min_bytes = 0,
                                     .stats = transport->rank() == 1 ? 2 : 0,
                                     .debug = 0});
      std::vector<float> values(1000, 1.0F);
      reducer.all_reduce(values, 0);
      for (const Stats& stats : {reducer.last(), reducer.totals()}) {
        if (transport->rank() == 1) {
          EXPECT_NE(stats.digest, 0U);
          EXPECT_EQ(stats.density_after(), 0.01);
          EXPECT_EQ(stats.residual_norm, std::sqrt(990.0));
        } else {
          EXPECT_EQ(stats.digest, 0U);
          EXPECT_EQ(stats.measured, 0U);
          EXPECT_TRUE(std::isnan(stats.density_after()));
          EXPECT_TRUE(std::isnan(stats.residual_norm));
        }
      }
    });
  }
}

TEST(Stats, CallsCountForTheirSchedule) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.schedule = "gather", .min_bytes = 4000});
      EXPECT_TRUE(reducer.schedule_stats().empty());
      TestBucket mixed(kMixed), whole({{5, 20000}}), small({{7, 500, 1}});
      for (TestBucket* bucket : {&mixed, &whole, &small, &whole}) {
        bucket->fill(Kind::normal, transport->rank(), 0);
        reducer.all_reduce(bucket->segments());
      }
      const std::vector<Stats> found = reducer.schedule_stats();
      ASSERT_EQ(found.size(), 3U);
      constexpr const char* kNames[] = {"gather+dense", "gather", "dense"};
      constexpr std::uint64_t kCalls[] = {1, 2, 1}, kCounts[] = {32300, 40000, 500};
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].schedule, kNames[i]);
        EXPECT_EQ(found[i].calls, kCalls[i]);
        EXPECT_EQ(found[i].count, kCounts[i]);
        EXPECT_EQ(found[i].reason + found[i].coding, "");
      }
      for (const BucketStats& bucket : reducer.bucket_stats()) EXPECT_FALSE(bucket.trying);
    });
  }
}

// A ring: 2 (P - 1) messages, of the bytes that it sends, and its passes over memory.
TEST(Stats, DenseSecondsAreThoseOfGivenLinks) {
  constexpr const char* kGiven = "inter=1ms,1MB/s+intra=1ms,1MB/s+pass=1000TB/s";
  constexpr std::size_t kCount = 40000;
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<float> values(kCount, 1.0F);
      std::vector<double> integers(kCount, 1.0);
      AllReducer reducer(transport, {.schedule = "gather", .links = kGiven});
      reducer.all_reduce(values, 0);
      const Stats last = reducer.last();
      const double expected = 1e-3 * 2 * (ranks - 1) + 1e-6 * 2 * (ranks - 1) * 4 * kCount / ranks;
      EXPECT_NEAR(last.dense_seconds, ranks == 1 ? 0 : expected, 1e-3 * expected);
      reducer.all_reduce(integers, 1);
      EXPECT_NEAR(reducer.last().dense_seconds, 2 * last.dense_seconds, 3e-3 * ranks);
      EXPECT_EQ(reducer.totals().dense_seconds, last.dense_seconds + reducer.last().dense_seconds);
    });
  }
}

TEST(Stats, DenseSecondsNeedLinksThatAreKnown) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto seconds_of = [&](const char* options) {
        AllReducer reducer(transport, Options::parse(options));
        std::vector<float> values(40000, 1.0F);
        reducer.all_reduce(values, 0);
        const std::string links = reducer.options().links;
        EXPECT_EQ(links.empty(), reducer.last().dense_seconds == 0);
        expect_equal_on_all_ranks(*transport,
                                  std::bit_cast<std::uint64_t>(reducer.last().dense_seconds));
        return reducer.last().dense_seconds;
      };
      EXPECT_EQ(seconds_of("schedule=gather"), 0);
      EXPECT_EQ(seconds_of("schedule=gather links=measured") > 0, ranks > 1);
      EXPECT_EQ(seconds_of("compressor=none links=measured"), 0);
    });
  }
}

TEST(Stats, CanBeReadWhileCallsAreInFlight) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, Options::parse("schedule=gather compressor=topk:0.01"));
      std::atomic<bool> done = false;
      std::thread reader([&] {
        std::uint64_t before = 0;
        while (!done) {
          std::uint64_t calls = 0;
          for (const BucketStats& bucket : reducer.bucket_stats()) calls += bucket.totals.calls;
          EXPECT_GE(calls, before);
          before = calls;
          std::this_thread::yield();
        }
      });
      TestBucket a(kMixed), b({{5, 20000}});
      for (int step = 0; step < 5; ++step) {
        Work first = reducer.all_reduce_async(a.segments());
        Work second = reducer.all_reduce_async(b.segments());
        first.wait();
        second.wait();
      }
      done = true;
      reader.join();
      EXPECT_EQ(reducer.bucket_stats()[1].totals.calls, 5U);
    });
  }
}

std::uint64_t digest_of(std::vector<float> values) {
  const Segment segments[] = {{.elements = std::span(values).first(2)},
                              {.elements = std::span(values).subspan(2)}};
  comm::Bucket bucket;
  bucket.count = values.size();
  Stats stats;
  comm::measure({}, segments, bucket, stats);
  return stats.digest;
}

TEST(Digest, IsOneOfBitsAndPlaces) {
  const std::uint64_t digest = digest_of({1, 0, 2, 3});
  EXPECT_EQ(digest, digest_of({1, 0, 2, 3}));
  EXPECT_NE(digest, digest_of({1, -0.0F, 2, 3}));
  EXPECT_NE(digest, digest_of({1, 0, 3, 2}));
  EXPECT_NE(digest, digest_of({2, 0, 1, 3}));
  EXPECT_NE(digest, digest_of({1, 0, 2, 3, 0}));
  // A native collective may leave another NaN on each rank.
  const auto nan = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  EXPECT_EQ(digest_of({1, 0, nan(0x7fc00000), 3}), digest_of({1, 0, nan(0xffc00001), 3}));
  EXPECT_NE(digest_of({1, 0, nan(0x7fc00000), 3}), digest_of({1, 0, nan(0x7f800000), 3}));
}

TEST(Stopwatch, LeavesOutWhatTheInnerStageCounts) {
  double whole = 0, inner = 1;
  {
    const kernels::Stopwatch watch(&whole, &inner);
    inner += 1e6;  // more than any test takes
  }
  EXPECT_LT(whole, 0);
  EXPECT_GE(whole, -1e6);
}

/// A bucket that travels half compressed, and one that goes dense.
std::vector<BucketStats> example() {
  return {
      {.id = 0x1234,
       .name = "layer.weight",
       .count = 2000,
       .compressed = 1000,
       .totals = {.calls = 4,
                  .schedule = "gather+dense",
                  .reason = "predicted to take 1.2 ms by gather, 15 ms by dense",
                  .coding = "eliasfano,float32",
                  .count = 8000,
                  .kept = 4040,
                  .wire_bytes = 18000,
                  .network_bytes = 12000,
                  .dense_wire_bytes = 36000,
                  .select_seconds = 0.004,
                  .encode_seconds = 0.002,
                  .exchange_seconds = 0.05,
                  .wait_seconds = 0.02,
                  .add_seconds = 0.001,
                  .poisoned = 1,
                  .measured = 8000,
                  .nonzero = 4080,
                  .digest = 0xabc,
                  .residual_norm = 12.5}},
      {.id = 0xfeed,
       .name = "",
       .count = 100,
       .totals = {.schedule = "dense", .reason = "400 bytes are below min_bytes=65536"}},
  };
}

std::string table_text(int level) {
  const std::vector<BucketStats> buckets = example();
  RecordedWrites recorded;
  std::ostream out(&recorded);
  comm::write_stats_table(out, 3, {.stats = level}, buckets, buckets.front().totals);
  EXPECT_EQ(recorded.writes().size(), 1U);
  return recorded.writes().front();
}

TEST(StatsTable, OfAMixedBucketAndADenseOne) {
  constexpr std::string_view kTable = R"(
winnow: rank 0 of 3, compressor=topk:0.01, schedule=auto
bucket        schedule      coding             count  calls     kept  bytes/call  network/call  saved  select ms  encode ms  exchange ms  wait ms  add ms  poisoned  clipped
layer.weight  gather+dense  eliasfano,float32   2000      4  50.50 %        4500          3000   2.0x      1.000      0.500       12.500    5.000   0.250         1        0
0xfeed        dense         -                    100      0        -           -             -      -          -          -            -        -       -         0        0
total         -             -                   2100      4  50.50 %        4500          3000   2.0x      1.000      0.500       12.500    5.000   0.250         1        0
0xfeed goes dense: 400 bytes are below min_bytes=65536
)";
  EXPECT_EQ(table_text(1), kTable.substr(1));
}

TEST(StatsTable, MeasuredColumnsComeLast) {
  const std::string text = table_text(2);
  EXPECT_NE(text.find("poisoned  clipped  density  residual            digest\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1        0  51.00 %      12.5  0000000000000abc\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("1        0  51.00 %         -  0000000000000abc\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("0        -         -                 -\n"), std::string::npos) << text;
}

TEST(StatsTable, Rank0PrintsItAtTheEnd) {
  for (const int ranks : rank_counts()) {
    for (const int level : {0, 1, 2}) {
      const RecordedErrors errors;
      std::atomic<bool> printer = false;
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
        if (transport->rank() == 0) printer = true;
        AllReducer reducer(transport, {.links = kGivenLinks, .stats = level});
        std::vector<float> values(1000, 1.0F);
        const Segment segment{.elements = values, .id = 9, .name = "head"};
        reducer.all_reduce(std::span(&segment, 1));
        EXPECT_TRUE(errors.writes().empty() || transport->rank() != 0);
      });
      const auto writes = errors.writes();
      if (!printer || level == 0) {
        EXPECT_TRUE(writes.empty());
        continue;
      }
      EXPECT_EQ(writes.size(), 1U);
      for (const std::string& table : writes) {
        EXPECT_NE(table.find("\nhead "), std::string::npos) << table;
        EXPECT_NE(table.find("\ntotal "), std::string::npos) << table;
        EXPECT_NE(table.find("\nhead goes dense: 4000 bytes"), std::string::npos) << table;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::tests
