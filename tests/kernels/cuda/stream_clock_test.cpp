// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Tests the times of calls on the model of CUDA alone, where a stream can stand still and the
// device's clock counts.
#include <gtest/gtest.h>

#include <cmath>
#include <winnow/winnow.hpp>

#include "comm/transport/one_of_many.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/gate.hpp"
#include "tests/harness/graph.hpp"

namespace winnow::tests {
namespace {

using kernels::Stopwatch;
using kernels::StreamClock;

constexpr std::size_t kCount = 5000;
const Options kOptions{.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .stats = 1};

double stages_of(const Stats& stats) {
  return stats.select_seconds + stats.encode_seconds + stats.exchange_seconds + stats.wait_seconds +
         stats.add_seconds;
}

/// The number of pieces of work; the model takes a microsecond for each.
std::int64_t pieces(double seconds) {
  return std::llround(1e6 * seconds);
}

/// This thread may capture another stream; the capture goes on, whatever the thread asks of this
/// one.
TEST(StreamClock, IsReadWhileAnotherStreamIsCaptured) {
  const Stream stream, other;
  AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(), kOptions, stream.exec());
  kernels::PlaceArray<float> bucket(stream.exec(), kCount);
  for (int call = 0; call < 3; ++call) reducer.all_reduce(bucket.span(), 0);
  const double before = stages_of(reducer.totals());
  const Graph graph(other, [&] {
    reducer.all_reduce(bucket.span(), 0);
    reducer.synchronize();
  });
  EXPECT_GT(stages_of(reducer.totals()), before);
  graph.launch(other);
}

/// Work counts for the innermost stage in which the host enqueues it.
TEST(StreamClock, WorkCountsForTheInnermostStage) {
  const Stream stream;
  const Exec exec = stream.exec();
  kernels::PlaceArray<float> memory(exec, 100);
  const auto work = [&](int times) {
    for (int i = 0; i < times; ++i) kernels::zero(exec, std::as_writable_bytes(memory.span()));
  };
  StreamClock clock(exec);
  double rest = 0, outer = 0, inner = 0;
  std::int64_t of_rest = 0, of_outer = 0, of_inner = 0, others = 0;
  std::vector<std::uint64_t> numbers;
  const auto read = [&] {
    clock.read([&](const StreamClock::Name& name, const double* stage, double seconds) {
      if (numbers.empty() || numbers.back() != name.number) numbers.push_back(name.number);
      std::int64_t& sum = stage == &rest    ? of_rest
                          : stage == &outer ? of_outer
                          : stage == &inner ? of_inner
                                            : others;
      sum += pieces(seconds);
    });
  };
  const auto call = [&](std::uint64_t number) {
    StreamClock::Call timed(&clock, rest);
    work(1);
    {
      const Stopwatch of_this(&outer, &inner);
      work(2);
      {
        const Stopwatch of_that(inner);
        work(4);
      }
      const Stopwatch of_nothing(nullptr);
      work(8);
    }
    const StreamClock::Stage apart(&StreamClock::kUncounted);
    work(16);
    if (number > 0) timed.end({.number = number});
  };
  work(1000);  // belongs to no call
  call(3);
  call(0);  // does not end
  { const Stopwatch of_no_call(outer); }
  call(4);
  read();
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(of_rest, 2 * 1);
  EXPECT_EQ(of_outer, 2 * (2 + 8));
  EXPECT_EQ(of_inner, 2 * 4);
  EXPECT_EQ(others, 2 * 16);
  read();
  EXPECT_EQ(of_inner, 2 * 4);
}

/// Every piece of work counts once, except the end of the call itself and the work of measuring:
/// the copies of elements and residual.
TEST(StreamClock, EveryPieceOfACallCounts) {
  const Stream stream;
  const Exec place = stream.exec();
  for (const int stats : {1, 2}) {
    Options options = kOptions;
    options.stats = stats;
    AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(), options, place);
    kernels::PlaceArray<float> bucket(place, kCount);
    const std::int64_t uncounted = stats == 1 ? 1 : 1 + 2;
    const Event begin(Event::Timing::on), end(Event::Timing::on);
    for (int step = 0; step < 3; ++step) {
      begin.record(stream);
      reducer.all_reduce(bucket.span(), 1);
      end.record(stream);
      reducer.synchronize();
      end.synchronize();
      if (step == 0) continue;  // the first step makes its state on the stream
      const std::int64_t all = pieces(end.seconds_since(begin));
      EXPECT_EQ(pieces(stages_of(reducer.last())), all - uncounted);
    }
  }
}

/// Calls return at once. They tell their times when the stream has passed them.
TEST(StreamClock, NobodyWaitsForTimes) {
  const Stream stream;
  const Exec place = stream.exec();
  AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(), kOptions, place);
  kernels::PlaceArray<float> bucket(place, kCount);
  reducer.all_reduce(bucket.span(), 1);
  reducer.synchronize();
  const double one = stages_of(reducer.totals());
  EXPECT_GT(one, 0);
  {
    Gate gate(stream);
    for (int call = 0; call < 3; ++call) reducer.all_reduce(bucket.span(), 1);
    EXPECT_EQ(stages_of(reducer.last()), 0);
    EXPECT_EQ(stages_of(reducer.totals()), one);
    EXPECT_EQ(reducer.totals().calls, 4U);
  }
  reducer.synchronize();
  const double last = stages_of(reducer.last());
  EXPECT_GT(last, 0);
  EXPECT_EQ(pieces(stages_of(reducer.totals())), pieces(one) + 3 * pieces(last));
}

/// If nobody asks for the stream's times, Stats has the host's times, and has them at once.
TEST(StreamClock, UnaskedTimesAreTheHosts) {
  const Stream stream;
  Options options = kOptions;
  options.stats = 0;
  AllReducer reducer(std::make_shared<comm::OneOfManyTransport>(), options, stream.exec());
  kernels::PlaceArray<float> bucket(stream.exec(), kCount);
  reducer.all_reduce(bucket.span(), 1);
  reducer.synchronize();
  const Gate gate(stream);
  reducer.all_reduce(bucket.span(), 1);
  EXPECT_GT(reducer.last().select_seconds, 0);
}

}  // namespace
}  // namespace winnow::tests
