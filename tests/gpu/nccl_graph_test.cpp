// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Graphs that hold calls over NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/winnow.hpp>

#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/gpu/nccl_meeting.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/device_buckets.hpp"
#include "tests/harness/graph.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// A graph holds calls, and every rank replays it: the bits are those of calls without a graph. No
/// call waits for the device, which would end the capture. A poisoned replay poisons all ranks.
/// Later calls go on with the random numbers that follow, whether or not the host has waited for
/// the replays.
void expect_replays_equal_calls(const Plan& plan, int ranks) {
  constexpr std::size_t kCount = 5000;
  const auto parts = static_cast<std::size_t>(ranks);
  const Meeting meeting(ranks);
  run_nccl_ranks(ranks, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const std::shared_ptr<Transport> transport = meeting.join(rank);
    const Options options{.compressor = plan.compressor,
                          .schedule = plan.schedule,
                          .min_bytes = 0,
                          .exempt_1d = false,
                          .max_part = 2048};
    AllReducer plain(transport, options, place);
    AllReducer captured(meeting.join(rank, 8), options, place);
    kernels::PlaceArray<float> here(place, kCount), there(place, kCount);
    const auto step = [&](int number, const auto& call) {
      auto gradient = make_gradient(Kind::heavy_tailed, kCount, rank, number, 7);
      if (number == 3 && rank == 1) gradient[4000] = std::numeric_limits<float>::infinity();
      kernels::copy(place, here.span(), std::span<const float>(gradient));
      kernels::copy(place, there.span(), std::span<const float>(gradient));
      kernels::wait(place);
      plain.all_reduce(here.span(), 7);
      call();
      EXPECT_TRUE(same_bits(on_host(place, there.span()), on_host(place, here.span())))
          << "step " << number;
      EXPECT_TRUE(
          same_bits(on_host(place, captured.residual(7)), on_host(place, plain.residual(7))));
    };
    const auto call = [&] { captured.all_reduce(there.span(), 7); };
    step(0, call);
    step(1, call);
    const Graph graph(stream, call);
    for (int number = 2; number < 6; ++number) step(number, [&] { graph.launch(stream); });
    if (rank == 0) captured.synchronize();  // the others have not waited when they meet
    const std::span<float> shard = there.span().first(kCount / parts),
                           expected = here.span().first(kCount / parts);
    plain.all_reduce(expected, 8);
    captured.all_reduce(shard, 8);
    EXPECT_TRUE(same_bits(on_host(place, shard), on_host(place, expected))) << "a new bucket";
    step(6, call);
    step(7, [&] { graph.launch(stream); });
    const std::span<float> input = there.span().first(parts * shard.size());
    kernels::PlaceArray<float> out(place, shard.size()), expected_out(place, shard.size());
    plain.reduce_scatter(here.span().first(input.size()), expected_out.span(), 9);
    captured.reduce_scatter(input, out.span(), 9);  // within it the host reads headers
    EXPECT_TRUE(same_bits(on_host(place, out.span()), on_host(place, expected_out.span())));
    captured.synchronize();
    EXPECT_EQ(captured.totals().poisoned, 1U);
  });
}

// Each rank's communicator takes seconds where ranks share a GPU: a case for each compressor can
// run beside the others.
class GraphsOverNccl : public AllReducerOverNccl, public testing::WithParamInterface<Plan> {};
INSTANTIATE_TEST_SUITE_P(Plans, GraphsOverNccl,
                         testing::Values(Plan{"topk:0.05,int8"}, Plan{"topk:0.05,int4:stochastic"},
                                         Plan{"randomk:0.05,int8:stochastic"},
                                         Plan{"int8:stochastic"},
                                         Plan{"randomk:0.05,int8:stochastic", "balanced"},
                                         Plan{"int8:stochastic", "balanced"},
                                         Plan{"randomk:0.05,int8:stochastic", "doubling"}));

TEST_P(GraphsOverNccl, ReplayCalls) {
  expect_replays_equal_calls(GetParam(), 3);
}

/// By doubling two ranks exchange no union, so nobody waits for the length of one.
TEST_F(AllReducerOverNccl, TwoRanksReplayDoubling) {
  expect_replays_equal_calls({"topk:0.05,int8", "doubling"}, 2);
}

/// NCCL keeps a communicator until the graphs with its work are gone. Nobody waits for that:
/// neither a rank that gives up a dead peer, nor one that destroys its transport first.
TEST_F(AllReducerOverNccl, NobodyWaitsForAGraph) {
  constexpr std::size_t kCount = 1000;
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const Options options{
        .compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .deadline = 1};
    kernels::PlaceArray<float> bucket(place, kCount);
    for (const bool peer_goes : {false, true}) {
      std::optional<Graph> graph;
      std::optional<AllReducer> reducer(std::in_place, meeting.join(rank, peer_goes ? 1 : 0),
                                        options, place);
      const auto call = [&] { reducer->all_reduce(bucket.span(), 7); };
      call();
      call();
      graph.emplace(stream, call);
      graph->launch(stream);
      reducer->synchronize();
      if (peer_goes && rank == 0) {
        graph->launch(stream);
        EXPECT_THROW(reducer->synchronize(), CommError);
      }
      reducer.reset();  // and its transport, before the graph
    }
  });
}

/// synchronize waits for a replay, too, and learns its outcome.
TEST_F(AllReducerOverNccl, AReplayIsWaitedFor) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const auto transport = meeting.join(rank);
    {
      AllReducer reducer(transport,
                         {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0}, place);
      kernels::PlaceArray<float> bucket(place, 1000);
      const auto call = [&] { reducer.all_reduce(bucket.span(), 7); };
      call();
      call();
      const Graph graph(stream, call);
      if (rank == 0) {
        kernels::fill(place, bucket.span().first(1), std::numeric_limits<float>::infinity());
      }
      graph.launch(stream);
      reducer.synchronize();
      EXPECT_EQ(reducer.totals().poisoned, 1U);
    }
    // Nothing is under way any more.
    const std::vector<int> all = {0, 1};
    EXPECT_EQ(transport->subset(all)->size(), 2);
  });
}

/// A capture in two levels is refused before it touches anything.
TEST_F(AllReducerOverNccl, NoGraphHoldsTwoLevels) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = "topk:0.05", .schedule = "two_level:gather", .min_bytes = 0},
                       place);
    kernels::PlaceArray<float> bucket(place, 1000);
    kernels::fill(place, bucket.span(), 1);
    const auto call = [&] { reducer.all_reduce(bucket.span(), 7); };
    call();
    const Graph graph(stream, [&] {
      EXPECT_THAT(call, testing::ThrowsMessage<UsageError>(testing::HasSubstr("in two levels")));
    });
    call();
    reducer.synchronize();
    EXPECT_EQ(reducer.totals().calls, 2U);
  });
}

}  // namespace
}  // namespace winnow::tests
