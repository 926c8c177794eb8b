// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Calls over NCCL that return when they are enqueued, and calls that fail: a peer is gone, or calls
// for something else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/winnow.hpp>

#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/gpu/nccl_meeting.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/device_buckets.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

class StreamOrderOverNccl : public AllReducerOverNccl, public testing::WithParamInterface<Plan> {};
INSTANTIATE_TEST_SUITE_P(
    Plans, StreamOrderOverNccl,
    testing::Values(Plan{"topk:0.05"}, Plan{"int8", "balanced"}, Plan{"randomk:0.05", "balanced"},
                    Plan{"topk:0.05", "shared"}, Plan{"topk:0.05,int8", "shared"},
                    Plan{"randomk:0.05", "doubling"}, Plan{"int8", "doubling"},
                    Plan{"topk:0.05", "two_level:gather"}, Plan{"int8", "two_level:balanced"},
                    Plan{"randomk:0.05", "two_level:doubling"},
                    Plan{"topk:0.05", "two_level:shared"}));

/// The host enqueues call after call while the peer has not begun one: of one bucket, or, in two
/// levels, each of another, since there the host waits for a bucket's last call.
TEST_P(StreamOrderOverNccl, CallsReturnWhenTheyAreEnqueued) {
  const Meeting meeting(GetParam().ranks(), Plan::kPerNode);
  run_nccl_ranks(GetParam().ranks(), [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = GetParam().compressor,
                        .schedule = GetParam().schedule,
                        .min_bytes = 0,
                        .exempt_1d = false},
                       place);
    kernels::PlaceArray<float> bucket(place, 3000);
    const auto gradient = make_gradient(Kind::heavy_tailed, 3000, rank, 0, 7);
    const auto call = [&](int number) {
      kernels::copy(place, bucket.span(), std::span<const float>(gradient));
      const bool has_own = GetParam().has_two_levels();
      reducer.all_reduce(bucket.span(), has_own ? static_cast<std::uint64_t>(number) : 7);
    };
    constexpr int kCalls = 3;
    for (int number = 0; number < kCalls; ++number) call(number);
    reducer.synchronize();
    if (rank == 1) meeting.await_word();
    for (int number = 0; number < kCalls; ++number) call(number);
    if (rank == 0) meeting.give_word();
    reducer.synchronize();
    EXPECT_EQ(reducer.totals().calls, 2U * kCalls);
    EXPECT_TRUE(reducer.last().schedule == GetParam().schedule) << reducer.last().schedule;
    EXPECT_EQ(reducer.totals().poisoned, 0U);
  });
}

class PeersOverNccl : public AllReducerOverNccl, public testing::WithParamInterface<Plan> {};
INSTANTIATE_TEST_SUITE_P(
    Plans, PeersOverNccl,
    testing::Values(Plan{"topk:0.05"}, Plan{"int8", "balanced"}, Plan{"randomk:0.05", "balanced"},
                    Plan{"topk:0.05", "balanced"}, Plan{"topk:0.05", "shared"},
                    Plan{"topk:0.05,int8", "shared"}, Plan{"randomk:0.05", "doubling"},
                    Plan{"topk:0.05", "doubling"}, Plan{"topk:0.05", "two_level:gather"},
                    Plan{"topk:0.05", "two_level:doubling"},
                    Plan{"topk:0.05", "two_level:balanced"},
                    Plan{"topk:0.05", "two_level:shared"}));

/// A peer makes no more calls. The device stops waiting for it at the deadline, and the residual
/// holds again what the waiting call took.
TEST_P(PeersOverNccl, NobodyWaitsForAPeerThatIsGone) {
  constexpr std::size_t kCount = 5000;
  const Meeting meeting(GetParam().ranks(), Plan::kPerNode);
  run_nccl_ranks(GetParam().ranks(), [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const std::shared_ptr<Transport> transport = meeting.join(rank);
    AllReducer reducer(transport,
                       {.compressor = GetParam().compressor,
                        .schedule = GetParam().schedule,
                        .min_bytes = 0,
                        .deadline = 2,
                        .stats = 1},
                       place);
    kernels::PlaceArray<float> bucket(place, kCount);
    const auto gradient = make_gradient(Kind::heavy_tailed, kCount, rank, 0, 7);
    kernels::copy(place, bucket.span(), std::span<const float>(gradient));
    reducer.all_reduce(bucket.span(), 7);
    reducer.synchronize();
    if (rank > 0) return;
    const std::vector<float> before = on_host(place, reducer.residual(7));
    const double seconds = reducer.totals().wait_seconds;
    EXPECT_GT(seconds, 0);
    kernels::copy(place, bucket.span(), std::span<const float>(gradient));
    bool heard = false;  // at once, as for a socket that the peer has closed
    try {
      reducer.all_reduce(bucket.span(), 7);
    } catch (const CommError&) {
      heard = true;
    }
    kernels::wait(place);  // not for ever
    for (const float element : on_host(place, bucket.span())) {
      EXPECT_TRUE(heard ? element == 0 : std::isnan(element));
    }
    EXPECT_THROW(reducer.all_reduce(bucket.span(), 7), CommError);
    EXPECT_THROW(reducer.synchronize(), CommError);
    EXPECT_EQ(reducer.totals().wait_seconds, seconds);  // nobody learnt how the second call ended
    const std::vector<float> after = on_host(place, reducer.residual(7));
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_FLOAT_EQ(after[i], gradient[i] + before[i]);
  });
}

/// Call after call, without a look at what became of the one before.
TEST_F(AllReducerOverNccl, TwoLevelsSendOnWhatTheLastCallRestored) {
  constexpr int kRanks = 4, kPerNode = 2;
  constexpr std::size_t kCount = 1000;
  for (const char* schedule :
       {"two_level:gather", "two_level:doubling", "two_level:balanced", "two_level:shared"}) {
    SCOPED_TRACE(schedule);
    const Meeting meeting(kRanks, kPerNode);
    run_nccl_ranks(kRanks, [&](int rank) {
      const Stream stream;
      const Exec place = stream.exec();
      AllReducer reducer(
          meeting.join(rank),
          {.compressor = "topk:1", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0},
          place);
      kernels::PlaceArray<float> bucket(place, kCount);
      const auto call = [&](float value) {
        kernels::fill(place, bucket.span(), value);
        if (rank == 1 && value == 2) {
          kernels::fill(place, bucket.span().first(1), std::numeric_limits<float>::infinity());
        }
        reducer.all_reduce(bucket.span(), 7);
      };
      for (const float value : {1.0F, 2.0F, 4.0F}) call(value);
      std::vector<float> expected(kCount, kRanks * (2 + 4));
      expected[0] -= 2;
      EXPECT_EQ(on_host(place, bucket.span()), expected);
      reducer.synchronize();
      EXPECT_EQ(reducer.totals().poisoned, 1U);
    });
  }
}

/// Parameter 1 is put back in a bucket of two, of which the host has not heard when a step begins
/// that calls it alone. The step is discarded, and the next call of both sends everything on.
TEST_F(AllReducerOverNccl, ADiscardedStepLeavesWhatWasRestored) {
  constexpr int kRanks = 4, kPerNode = 2;
  constexpr std::size_t kCount = 1000;
  const Meeting meeting(kRanks, kPerNode);
  run_nccl_ranks(kRanks, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = "topk:1",
                        .schedule = "two_level:gather",
                        .op = ReduceOp::sum,
                        .min_bytes = 0},
                       place);
    kernels::PlaceArray<float> first(place, kCount), second(place, kCount);
    const Segment both[] = {{.elements = first.span(), .id = 1},
                            {.elements = second.span(), .id = 2}};
    const auto fill = [&](float value) {
      kernels::fill(place, first.span(), value);
      kernels::fill(place, second.span(), value);
    };
    fill(1);
    reducer.all_reduce(both);
    fill(0);
    reducer.all_reduce(first.span(), 1);
    fill(2);
    if (rank == 1) {
      kernels::fill(place, second.span().first(1), std::numeric_limits<float>::infinity());
    }
    reducer.all_reduce(both);
    reducer.begin_step();
    fill(0);
    reducer.all_reduce(first.span(), 1);
    reducer.discard_step();
    fill(0);
    reducer.all_reduce(both);
    std::vector<float> expected(kCount, 2 * kRanks);
    EXPECT_EQ(on_host(place, first.span()), expected);
    expected[0] -= 2;
    EXPECT_EQ(on_host(place, second.span()), expected);
    fill(0);
    reducer.all_reduce(both);
    EXPECT_EQ(on_host(place, first.span()), std::vector<float>(kCount, 0));
    reducer.synchronize();
    EXPECT_EQ(reducer.totals().poisoned, 1U);
  });
}

/// A dense sum has no header that could tell the device that it never came.
TEST_F(AllReducerOverNccl, ADenseCallWithoutAPeerFails) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = "none", .op = ReduceOp::sum, .deadline = 1}, place);
    kernels::PlaceArray<float> bucket(place, 1000);
    reducer.all_reduce(bucket.span(), 7);
    reducer.synchronize();
    if (rank == 1) return;
    Work work = reducer.all_reduce_async(bucket.span(), 7);
    const auto wait = [&] {
      work.wait(stream.get());
      kernels::wait(place);  // until the call has been given up
      work.wait();
    };
    EXPECT_THROW(wait(), CommError);
    EXPECT_THROW(reducer.synchronize(), CommError);
  });
}

/// Ranks agree on the size of a bucket's messages before they send the first one.
TEST_F(AllReducerOverNccl, RanksWhoseBucketsDifferLearnSo) {
  const Meeting meeting(3);
  run_nccl_ranks(3, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(
        meeting.join(rank),
        {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .deadline = 60}, place);
    kernels::PlaceArray<float> bucket(place, rank == 1 ? 200 : 100);
    try {
      reducer.all_reduce(bucket.span(), 7);
      ADD_FAILURE() << "rank " << rank << " heard nothing";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("in the count of elements"), std::string::npos)
          << error.what();
    }
  });
}

/// Later calls do not ask again. Then messages of unequal sizes end at the deadline, or before.
TEST_F(AllReducerOverNccl, RanksThatTakeKnownBucketsCrosswiseEnd) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(
        meeting.join(rank),
        {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .deadline = 1}, place);
    kernels::PlaceArray<float> few(place, 1000), many(place, 9000);
    reducer.all_reduce(few.span(), 1);
    reducer.all_reduce(many.span(), 2);
    reducer.synchronize();
    const auto cross = [&] {
      reducer.all_reduce(rank == 0 ? few.span() : many.span(), rank == 0 ? 1 : 2);
      reducer.synchronize();
    };
    EXPECT_THROW(cross(), CommError);
  });
}

/// A host that enqueues until streams are full, and waits within a call for space, does not hang.
TEST_F(AllReducerOverNccl, NobodyWaitsForRoomBehindAPeerThatIsGone) {
  constexpr std::size_t kCount = 100;
  constexpr int kMore = 400;  // more calls than fit a stream
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(
        meeting.join(rank),
        {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .deadline = 1}, place);
    kernels::PlaceArray<float> bucket(place, kCount);
    reducer.all_reduce(bucket.span(), 7);
    reducer.synchronize();
    if (rank == 1) return;
    const auto go_on = [&] {
      for (int call = 0; call < kMore; ++call) reducer.all_reduce(bucket.span(), 7);
    };
    EXPECT_THROW(go_on(), CommError);
    EXPECT_THROW(reducer.synchronize(), CommError);
  });
}

/// The host of a schedule that waits for the device also waits for an earlier call, for which
/// nobody waited yet; it does so no longer than the deadline.
TEST_F(AllReducerOverNccl, NobodyWaitsForEverForAnEarlierCall) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = "topk:0.05",
                        .schedule = "balanced",
                        .min_bytes = 4096,
                        .exempt_1d = false,
                        .deadline = 1},
                       place);
    kernels::PlaceArray<float> dense(place, 100), compressed(place, 5000);
    for (int call = 0; call < 2; ++call) {
      reducer.all_reduce(dense.span(), 1);
      reducer.all_reduce(compressed.span(), 2);
    }
    reducer.synchronize();
    if (rank == 1) return;
    const auto go_on = [&] {
      reducer.all_reduce(dense.span(), 1);
      reducer.all_reduce(compressed.span(), 2);
    };
    EXPECT_THROW(go_on(), CommError);
  });
}

}  // namespace
}  // namespace winnow::tests
