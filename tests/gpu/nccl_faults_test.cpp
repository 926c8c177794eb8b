// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// An NCCL transport after NCCL has failed, which the model does on request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>

#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/model/nccl_model.hpp"

namespace winnow::tests {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

TEST(NcclFaults, WhereOneRankDoesNotConnectAllHearOfIt) {
  const auto others = local_transports(3);
  fail_next(NcclJob::connect, 1);
  run_nccl_ranks(3, [&](int rank) {
    Transport& other = *others[static_cast<std::size_t>(rank)];
    EXPECT_THAT([&] { (void)nccl_transport(other, soon()); },
                ThrowsMessage<CommError>(
                    HasSubstr(rank == 1 ? "ncclCommGetAsyncError" : "rank 1 cannot take part")));
  });
}

// NCCL writes to a subset's place even after a failed split, when it is aborted: AddressSanitizer
// checks that the place still exists.
TEST(NcclFaults, ASplitThatFailsEndsItsRankAlone) {
  const auto others = local_transports(2);
  fail_next(NcclJob::split, 1);
  run_nccl_ranks(2, [&](int rank) {
    const auto transport = nccl_transport(*others[static_cast<std::size_t>(rank)], soon());
    const std::vector<int> alone{rank};
    if (rank == 0) {
      EXPECT_EQ(transport->subset(alone)->size(), 1);
      return;
    }
    EXPECT_THAT([&] { (void)transport->subset(alone); },
                ThrowsMessage<CommError>(HasSubstr("ncclCommGetAsyncError")));
    EXPECT_THROW((void)transport->subset(alone), CommError);
  });
}

/// Ranks end their transports while graphs hold the communicators. Returns the graphs.
std::vector<std::unique_ptr<const Graph>> end_before_graphs() {
  const auto others = local_transports(2);
  std::vector<std::unique_ptr<const Graph>> graphs(2);
  run_nccl_ranks(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Stream stream;
    const DeviceArray<float> elements(1000);
    const auto transport = nccl_transport(*others[r], soon());
    const auto call = [&] {
      transport->all_reduce(stream.exec(), elements.span(), ReduceOp::sum, soon());
    };
    call();
    graphs[r] = std::make_unique<const Graph>(stream, call);
  });
  return graphs;
}

/// The graphs go while the process exits. Threads that end the communicators need what a process
/// destroys last.
TEST(NcclFaultsDeathTest, AProcessThatExitsWaitsForItsCommunicatorsToEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_early = [] {
    std::atexit([] { std::_Exit(living_communicators() == 0 ? 0 : 3); });
    std::thread([graphs = end_before_graphs()]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      graphs.clear();
    }).detach();
    std::exit(0);
  };
  EXPECT_EXIT(exit_early(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace winnow::tests
