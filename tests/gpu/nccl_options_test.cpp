// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What NCCL and CUDA are asked for where Winnow makes communicators and streams. The models note
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "comm/transport/bridge/staged.hpp"
#include "kernels/cuda/stream.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/model/cuda_model.hpp"
#include "tests/model/nccl_model.hpp"

namespace winnow::tests {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;

constexpr int kUnset = NCCL_CONFIG_UNDEF_INT;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

/// Runs `body` on each rank over its end of a transport of host memory.
void run(int ranks, const std::function<void(Transport&)>& body) {
  const auto others = local_transports(ranks);
  run_nccl_ranks(ranks, [&](int rank) { body(*others[static_cast<std::size_t>(rank)]); });
}

/// What is asked for by a communicator with these options, its duplicate and its subset of all.
std::vector<NcclConfig> configs_with(const NcclOptions& options) {
  (void)take_configs();
  run(2, [&](Transport& other) {
    const auto transport = nccl_transport(other, soon(), options);
    const auto duplicate = transport->duplicate(soon());
    EXPECT_EQ(duplicate->subset(std::vector{0, 1})->size(), 2);
  });
  return take_configs();
}

/// As each rank gives it to the calls of configs_with.
std::vector<NcclConfig> on_two_ranks(int min_ctas, int max_ctas, int cga_cluster_size) {
  std::vector<NcclConfig> all;
  for (const char* const call :
       {"ncclCommInitRankConfig", "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommSplit",
        "ncclCommSplit", "ncclCommSplit"}) {
    all.push_back({.call = call,
                   .blocking = 0,
                   .min_ctas = min_ctas,
                   .max_ctas = max_ctas,
                   .cga_cluster_size = cga_cluster_size,
                   .split_share = 0});
  }
  return all;
}

TEST(NcclOptions, LimitsReachEveryCommunicator) {
  EXPECT_EQ(configs_with({.min_ctas = 2, .max_ctas = 4, .cga_cluster_size = 1}),
            on_two_ranks(2, 4, 1));
  EXPECT_EQ(configs_with({.max_ctas = 4}), on_two_ranks(kUnset, 4, kUnset));
}

TEST(NcclOptions, WithoutThemNcclChooses) {
  EXPECT_EQ(configs_with({}), on_two_ranks(kUnset, kUnset, kUnset));
}

// NCCL, as its model, refuses a minimum without a maximum.
TEST(NcclOptions, AMinimumGoesWithTheMostThatNcclCan) {
  EXPECT_EQ(configs_with({.min_ctas = 16}), on_two_ranks(16, 64, kUnset));
  EXPECT_EQ(configs_with({.min_ctas = 100}), on_two_ranks(100, 100, kUnset));
}

// A part without a configuration has its parent's, and its waits would keep no deadline.
TEST(NcclOptions, ABlockingCommunicatorOfTheCallersHasDuplicatesThatAreNot) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  (void)take_configs();
  run_nccl_ranks(2, [&](int rank) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
    {
      const auto borrowed = nccl_transport(comm, 0, {.max_ctas = 4});
      const auto duplicate = borrowed->duplicate(soon());
      const Stream stream;
      const DeviceArray<float> elements(3);
      elements.upload(std::vector<float>(3, 1), stream);
      duplicate->all_reduce(stream.exec(), elements.span(), ReduceOp::sum, soon());
      EXPECT_EQ(elements.download(stream), std::vector<float>(3, 2));
    }
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
  const NcclConfig expected{.call = "ncclCommSplit",
                            .blocking = 0,
                            .min_ctas = kUnset,
                            .max_ctas = 4,
                            .cga_cluster_size = kUnset,
                            .split_share = 0};
  const std::vector<NcclConfig> configs = take_configs();
  EXPECT_THAT(configs, SizeIs(2));
  EXPECT_THAT(configs, Each(expected));
}

TEST(NcclOptions, WhatCannotBeIsRefusedOnEveryRank) {
  const auto expect_refused = [](const NcclOptions& options, const char* why) {
    run(2, [&](Transport& other) {
      const bool wrong = other.rank() == 1;
      const auto make = [&] {
        (void)nccl_transport(other, soon(), wrong ? options : NcclOptions{});
      };
      if (wrong) {
        EXPECT_THAT(make, ThrowsMessage<UsageError>(HasSubstr(why)));
      } else {
        EXPECT_THAT(make, ThrowsMessage<CommError>(HasSubstr("rank 1 cannot take part")));
      }
    });
    EXPECT_THAT([&] { (void)nccl_transport({.path = "x"}, soon(), options); },
                ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  expect_refused({.min_ctas = -1}, "min_ctas is -1");
  expect_refused({.max_ctas = -2}, "max_ctas is -2");
  expect_refused({.min_ctas = 5, .max_ctas = 4}, "min_ctas is 5 and max_ctas 4");
  expect_refused({.cga_cluster_size = -1}, "cga_cluster_size is -1");
  expect_refused({.cga_cluster_size = 9}, "must be from 1 to 8");
}

TEST(NcclOptions, DifferencesAreAnErrorOnAllRanks) {
  run(3, [](Transport& other) {
    const NcclOptions options{.max_ctas = other.rank() == 2 ? 8 : 4};
    EXPECT_THAT([&] { (void)nccl_transport(other, soon(), options); },
                ThrowsMessage<UsageError>(HasSubstr(
                    "rank 0 has min_ctas=0 max_ctas=4 cga_cluster_size=0 register_memory=0, rank 2 "
                    "has min_ctas=0 max_ctas=8 cga_cluster_size=0 register_memory=0")));
  });
}

TEST(NcclOptions, ThoseOfAMeetingAreRank0s) {
  std::string folder = testing::TempDir() + "winnow_options_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto join = [&](int rank, int max_ctas, Deadline deadline) {
    return nccl_transport({.path = folder + "/id", .job = 3, .rank = rank, .size = 2}, deadline,
                          {.max_ctas = max_ctas});
  };
  run_nccl_ranks(2, [&](int rank) {
    const auto transport = join(rank, 4, soon());
    EXPECT_EQ(transport->size(), 2);
  });
  run_nccl_ranks(2, [&](int rank) {
    if (rank == 1) {
      EXPECT_THAT([&] { (void)join(1, 8, soon()); },
                  ThrowsMessage<UsageError>(HasSubstr("rank 0 has min_ctas=0 max_ctas=4")));
    } else {
      EXPECT_THROW((void)join(0, 4, Deadline::after(std::chrono::seconds(1))), CommError);
    }
  });
  EXPECT_EQ(::rmdir(folder.c_str()), 0);
}

/// The streams that ranks' AllReducers over NCCL have made, while they live.
TEST(StreamPriority, HostMessagesHaveTheirReducers) {
  run(2, [](Transport& other) {
    const Stream stream(-2 - other.rank());
    const auto count = [&] { return stream_priorities().count(stream.priority()); };
    EXPECT_EQ(stream.priority(), -2 - other.rank());
    EXPECT_EQ(count(), 1U);
    {
      const std::shared_ptr<Transport> transport = nccl_transport(other, soon());
      const AllReducer reducer(transport, {}, stream.exec());
      EXPECT_EQ(count(), 3U);
    }
    EXPECT_EQ(count(), 1U);
  });
}

TEST(StreamPriority, WhatArrivesHasThatOfTheFirstStart) {
  run(2, [](Transport& other) {
    const Stream stream(-2 - other.rank());
    const auto count = [&] { return stream_priorities().count(stream.priority()); };
    const DeviceZeros<std::byte> sent(100, stream), received(100, stream);
    const auto staged = comm::staged(other);
    const auto exchange = [&] {
      staged->send(sent.span(), 1 - other.rank());
      staged->recv(received.span(), 1 - other.rank(), nullptr);
      staged->wait(staged->start(stream.exec()), soon());
    };
    exchange();
    exchange();
    EXPECT_EQ(count(), 2U);
  });
}

TEST(StreamPriority, TheDefaultStreamHasTheDefaultOne) {
  EXPECT_EQ(kernels::cuda::StreamRef(nullptr).priority(), 0);
}

// CUDA's rule: it takes the nearest that there is.
TEST(StreamPriority, OneThatTheDeviceLacksIsTheNearest) {
  EXPECT_EQ(Stream(-100).priority(), -5);
  EXPECT_EQ(Stream(7).priority(), 0);
}

}  // namespace
}  // namespace winnow::tests
