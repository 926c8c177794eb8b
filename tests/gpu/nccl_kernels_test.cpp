// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// How many kernels a call over NCCL is, on the SIMT machine, which runs them as they are.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <span>
#include <vector>
#include <winnow/winnow.hpp>

#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/gpu/nccl_meeting.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/nodes_transport.hpp"
#include "tests/laws/reference.hpp"
#include "tests/model/cuda_model.hpp"

namespace winnow::tests {
namespace {

struct Enqueued {
  std::uint64_t kernels = enqueued(cudaGraphNodeTypeKernel),
                clears = enqueued(cudaGraphNodeTypeMemset), copies = copies_to_host();
};

/// Calls check(enqueued, rank) on each rank with what its third call has enqueued. A group of NCCL
/// is a kernel. In two levels nodes have two ranks.
template <class Check>
void count_kernels(const Plan& plan, int ranks, const Check& check) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks");
  const Meeting meeting(ranks, per_node(plan.schedule));
  run_nccl_ranks(ranks, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = plan.compressor,
                        .schedule = plan.schedule,
                        .min_bytes = 0,
                        .exempt_1d = false},
                       place);
    kernels::PlaceArray<float> bucket(place, 3000);
    for (int step = 0; step < 3; ++step) {
      const auto gradient = make_gradient(Kind::heavy_tailed, bucket.span().size(), rank, step, 7);
      kernels::copy(place, bucket.span(), std::span<const float>(gradient));
      kernels::wait(place);
      const Enqueued before;
      reducer.all_reduce(bucket.span(), 7);
      reducer.synchronize();
      Enqueued call;
      call.kernels -= before.kernels;
      call.clears -= before.clears;
      call.copies -= before.copies;
      if (step == 2) check(call, rank);
    }
  });
}

struct KernelsOfCall {
  Plan plan;
  std::uint64_t kernels, clears;
};
std::ostream& operator<<(std::ostream& to, const KernelsOfCall& of) {
  return to << of.plan;
}
class KernelsOverNccl : public AllReducerOverNccl,
                        public testing::WithParamInterface<KernelsOfCall> {};

class KernelsOfGather : public KernelsOverNccl {};
INSTANTIATE_TEST_SUITE_P(Plans, KernelsOfGather,
                         testing::Values(KernelsOfCall{{"topk:0.05"}, 11, 4},
                                         KernelsOfCall{{"topk:0.05,int8"}, 14, 4},
                                         KernelsOfCall{{"int8"}, 10, 3}));

/// Messages of all other ranks share kernels, so a call's kernels and clears do not grow with their
/// number.
TEST_P(KernelsOfGather, RanksShareThem) {
  for (const int ranks : {2, 4, 8}) {
    count_kernels(GetParam().plan, ranks, [](const Enqueued& call, int) {
      EXPECT_EQ(call.kernels, GetParam().kernels);
      EXPECT_EQ(call.clears, GetParam().clears);
    });
  }
}

class KernelsOfOwners : public KernelsOverNccl {};
INSTANTIATE_TEST_SUITE_P(Plans, KernelsOfOwners,
                         testing::Values(KernelsOfCall{{"topk:0.05", "balanced"}, 34, 9},
                                         KernelsOfCall{{"topk:0.05,int8", "balanced"}, 35, 9},
                                         KernelsOfCall{{"randomk:0.05", "balanced"}, 27, 6},
                                         KernelsOfCall{{"int8", "balanced"}, 22, 5},
                                         KernelsOfCall{{"topk:0.05", "shared"}, 25, 6},
                                         KernelsOfCall{{"topk:0.05,int8", "shared"}, 39, 10},
                                         KernelsOfCall{{"int8", "shared"}, 31, 8}));

/// Likewise of messages to all owners and from all of them; one that owns or sends nothing needs
/// fewer.
TEST_P(KernelsOfOwners, OwnersShareThem) {
  for (const int ranks : {2, 4, 8}) {
    count_kernels(GetParam().plan, ranks, [](const Enqueued& call, int) {
      EXPECT_LE(call.kernels, GetParam().kernels);
      EXPECT_LE(call.clears, GetParam().clears);
    });
  }
}

/// What the host waits for within a call it copies: a word for each union, this rank's and the one
/// that comes, or all owners' counts. Two ranks exchange no union, four one each, and eight two. In
/// two levels one copy more brings the lengths of all sums that go round the node.
TEST_F(AllReducerOverNccl, HostsHearOfUnionsThatTravel) {
  const auto expect_copies = [](const Plan& plan, int ranks, std::vector<std::uint64_t> copies) {
    SCOPED_TRACE(testing::Message() << plan);
    copies.resize(static_cast<std::size_t>(ranks), copies.front());
    count_kernels(plan, ranks, [&](const Enqueued& call, int rank) {
      EXPECT_EQ(call.copies, copies[static_cast<std::size_t>(rank)]) << "rank " << rank;
    });
  };
  expect_copies({"topk:0.05", "doubling"}, 2, {0});
  expect_copies({"topk:0.05", "doubling"}, 4, {2});
  expect_copies({"topk:0.05", "doubling"}, 8, {4});
  expect_copies({"topk:0.05", "doubling"}, 3, {2, 1, 1});  // host, guest, and one that has neither
  expect_copies({"randomk:0.05", "doubling"}, 4, {0});
  expect_copies({"int8", "doubling"}, 3, {0});
  expect_copies({"topk:0.05", "balanced"}, 4, {2});
  expect_copies({"int8", "balanced"}, 4, {0});
  expect_copies({"topk:0.05", "gather"}, 4, {0});
  expect_copies({"topk:0.05,int8", "shared"}, 4, {0});
  expect_copies({"topk:0.05", "two_level:doubling"}, 4, {1});
  expect_copies({"topk:0.05", "two_level:doubling"}, 8, {3});
  expect_copies({"randomk:0.05", "two_level:doubling"}, 4, {0});
  expect_copies({"topk:0.05", "two_level:balanced"}, 4, {2});
  expect_copies({"topk:0.05", "two_level:gather"}, 4, {0});
  expect_copies({"topk:0.05,int8", "two_level:shared"}, 4, {0});
}

}  // namespace
}  // namespace winnow::tests
