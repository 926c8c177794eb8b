// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Stats times of calls on a device.
#include <gtest/gtest.h>

#include <latch>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/winnow.hpp>

#include "comm/transport/one_of_many.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::size_t kCount = 5000;

class StatsOnDevice : public DeviceTest {};

double stages_of(const Stats& stats) {
  return stats.select_seconds + stats.encode_seconds + stats.exchange_seconds + stats.wait_seconds +
         stats.add_seconds;
}

void bring(const Exec& exec, std::span<float> there, std::span<const float> here) {
  kernels::copy(exec, std::as_writable_bytes(there), std::as_bytes(here));
  kernels::wait(exec);
}

/// Each stage of a schedule has work on the stream; no moment counts twice.
TEST_F(StatsOnDevice, StagesAreWithinTheStreamsTime) {
  for (const char* text :
       {"schedule=gather compressor=topk:0.05,int8 stats=1",
        "schedule=gather compressor=int4 stats=1", "schedule=gather compressor=topk:0.05 stats=2",
        "schedule=balanced compressor=topk:0.05 stats=1",
        "schedule=balanced compressor=int8 stats=2",
        "schedule=doubling compressor=topk:0.05 stats=1",
        "schedule=shared compressor=topk:0.05,int8 stats=1",
        "schedule=two_level:balanced compressor=topk:0.05 stats=1"}) {
    SCOPED_TRACE(text);
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      const Stream stream;
      const Exec place = stream.exec();
      AllReducer reducer(transport, Options::parse(text, {.min_bytes = 0}), place);
      kernels::PlaceArray<float> bucket(place, kCount);
      const Event begin(Event::Timing::on), end(Event::Timing::on);
      for (int step = 0; step < 3; ++step) {
        bring(place, bucket.span(),
              make_gradient(Kind::heavy_tailed, kCount, transport->rank(), step, 7));
        begin.record(stream);
        reducer.all_reduce(bucket.span(), 7);
        end.record(stream);
        reducer.synchronize();
        end.synchronize();
        const Stats last = reducer.last();
        EXPECT_GT(last.select_seconds, 0);
        EXPECT_GT(last.encode_seconds, 0);
        EXPECT_GT(last.add_seconds, 0);
        constexpr double kRounding = 1e-6;  // of floats, a stretch each
        EXPECT_LE(stages_of(last), end.seconds_since(begin) * (1 + kRounding));
      }
    });
  }
}

/// Each bucket has its own times, totals have the sum, and none that synchronize has learnt of is
/// lost.
TEST_F(StatsOnDevice, TimesGoToTheirBuckets) {
  const Stream stream;
  const Exec place = stream.exec();
  AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(),
                     {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .stats = 1},
                     place);
  kernels::PlaceArray<float> first(place, kCount), second(place, 300);
  const Segment pair[] = {{.elements = first.span().first(2000), .id = 2},
                          {.elements = second.span(), .id = 3}};
  reducer.all_reduce(first.span(), 1);
  reducer.all_reduce(pair);
  reducer.all_reduce(first.span(), 1);
  reducer.synchronize();
  const auto buckets = reducer.bucket_stats();
  ASSERT_EQ(buckets.size(), 2U);
  for (const auto stage : {&Stats::select_seconds, &Stats::encode_seconds, &Stats::add_seconds}) {
    EXPECT_GT(reducer.last().*stage, 0);
    EXPECT_GT(buckets[0].totals.*stage, reducer.last().*stage);
    EXPECT_GT(buckets[1].totals.*stage, 0);
    EXPECT_DOUBLE_EQ(buckets[0].totals.*stage + buckets[1].totals.*stage, reducer.totals().*stage);
    EXPECT_DOUBLE_EQ(reducer.schedule_stats().front().*stage, reducer.totals().*stage);
  }
  const Stats before = reducer.totals();
  reducer.synchronize();  // each once
  EXPECT_EQ(stages_of(reducer.totals()), stages_of(before));
}

/// A graph has no times and disturbs none.
TEST_F(StatsOnDevice, AGraphHasNone) {
  const Stream stream;
  const Exec place = stream.exec();
  AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(),
                     {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .stats = 1},
                     place);
  kernels::PlaceArray<float> bucket(place, kCount);
  const auto call = [&] { reducer.all_reduce(bucket.span(), 1); };
  call();
  call();
  reducer.synchronize();
  const Stats before = reducer.totals();
  const Graph graph(stream, call);
  for (int replay = 0; replay < 3; ++replay) graph.launch(stream);
  reducer.synchronize();
  EXPECT_EQ(stages_of(reducer.totals()), stages_of(before));
  call();
  reducer.synchronize();
  EXPECT_GT(reducer.last().select_seconds, 0);
  EXPECT_EQ(reducer.totals().calls, 4U);
}

/// A call that throws is not counted, and its marks disturb no other call.
TEST_F(StatsOnDevice, ACallThatFailsHasNone) {
  for (const char* schedule : {"gather", "balanced"}) {
    std::latch both_are_done(2);  // with the call that succeeds
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      const Stream stream;
      const Exec place = stream.exec();
      kernels::PlaceArray<float> bucket(place, kCount);
      const Options options{
          .compressor = "topk:0.05", .schedule = schedule, .min_bytes = 0, .stats = 1};
      {
        AllReducer reducer(transport, options, place);
        reducer.all_reduce(bucket.span(), 1);
        reducer.synchronize();
        const Stats before = reducer.totals();
        EXPECT_GT(stages_of(before), 0);
        both_are_done.arrive_and_wait();
        if (transport->rank() == 1) {
          transport->abort("gone");
          return;
        }
        EXPECT_THROW(
            {
              reducer.all_reduce(bucket.span(), 1);
              reducer.synchronize();
              reducer.all_reduce(bucket.span(), 1);
            },
            CommError);
        EXPECT_EQ(stages_of(reducer.totals()), stages_of(before));
        EXPECT_EQ(reducer.totals().calls, 1U);
      }
      AllReducer other(std::make_shared<comm::OneOfManyTransport>(), options, place);
      other.all_reduce(bucket.span(), 1);
      other.synchronize();
      EXPECT_GT(other.last().select_seconds, 0);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
