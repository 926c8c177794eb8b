// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What calls an AllReducer makes of NCCL, which the model counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "compress/compressor.hpp"
#include "compress/message.hpp"
#include "kernels/arithmetic/partition.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/harness/nodes_transport.hpp"
#include "tests/model/cuda_model.hpp"
#include "tests/model/nccl_model.hpp"

namespace winnow::tests {
namespace {

constexpr std::size_t kCount = 5000;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

/// Calls of all ranks together.
struct Calls {
  std::uint64_t sends = calls_of("ncclSend"), receipts = calls_of("ncclRecv"),
                all_gathers = calls_of("ncclAllGather");
};

std::shared_ptr<Transport> connect(const std::shared_ptr<Transport>& other,
                                   const Options& options) {
  NodesTransport placed(other, per_node(options.schedule));
  return nccl_transport(placed, soon());
}

/// One rank's AllReducer and bucket.
struct Rank {
  Rank(const std::shared_ptr<Transport>& other, const Options& options)
      : transport(connect(other, options)),
        reducer(transport, options, stream.exec()),
        bucket(stream.exec(), kCount) {}

  void call() {
    kernels::fill(stream.exec(), bucket.span(), 1.0F);
    reducer.all_reduce(bucket.span(), 7);
    reducer.synchronize();
  }

  Stream stream;
  std::shared_ptr<Transport> transport;
  AllReducer reducer;
  kernels::PlaceArray<float> bucket;
};

/// Runs `body` on `ranks` ranks after two calls, which plan, and returns the calls of NCCL that it
/// makes.
Calls calls_in(int ranks, const Options& options, const std::function<void(Rank&)>& body) {
  std::vector<std::shared_ptr<Transport>> others;
  std::ranges::move(local_transports(ranks), std::back_inserter(others));
  const auto meet = [&](int rank) {
    std::byte word{};
    std::vector<std::byte> words(others.size());
    others[static_cast<std::size_t>(rank)]->all_gather({}, {&word, 1}, words, soon());
  };
  Calls before, after;
  run_nccl_ranks(ranks, [&](int rank) {
    Rank self(others[static_cast<std::size_t>(rank)], options);
    self.call();
    self.call();
    meet(rank);
    if (rank == 0) before = {};
    meet(rank);
    body(self);
    meet(rank);
    if (rank == 0) after = {};
    meet(rank);
  });
  after.sends -= before.sends;
  after.receipts -= before.receipts;
  after.all_gathers -= before.all_gathers;
  return after;
}

Options gather(const std::string& compressor) {
  return {.compressor = compressor, .schedule = "gather", .min_bytes = 0, .exempt_1d = false};
}

TEST(NcclCalls, MessagesOfOneSizeAreOneCollective) {
  for (const char* const compressor : {"topk:0.01", "topk:0.05,int4", "int8", "randomk:0.01"}) {
    for (const int ranks : {2, 3}) {
      const Calls calls = calls_in(ranks, gather(compressor), [](Rank& self) {
        self.call();
        EXPECT_EQ(self.reducer.last().schedule, "gather");
      });
      EXPECT_EQ(calls.all_gathers, static_cast<std::uint64_t>(ranks)) << compressor;
      EXPECT_EQ(calls.sends, 0U) << compressor;
      EXPECT_EQ(calls.receipts, 0U) << compressor;
    }
  }
}

TEST(NcclCalls, EachPartIsACollective) {
  Options options = gather("topk:0.01");
  options.max_part = 2048;
  const Calls calls = calls_in(3, options, [](Rank& self) { self.call(); });
  EXPECT_EQ(calls.all_gathers, 3U * 3U);
  EXPECT_EQ(calls.sends, 0U);
}

/// Sizes first, then messages.
TEST(NcclCalls, MessagesOfOpenSizesAreSent) {
  const Calls calls = calls_in(3, gather("threshold:2"), [](Rank& self) { self.call(); });
  EXPECT_EQ(calls.all_gathers, 0U);
  EXPECT_EQ(calls.sends, 3U * 2U * 2U);
  EXPECT_EQ(calls.receipts, calls.sends);
}

/// How often the host waits for its stream within a call.
std::uint64_t waits_in(const Options& options) {
  std::uint64_t waits = 0;
  (void)calls_in(per_node(options.schedule) == 0 ? 3 : 4, options, [&](Rank& self) {
    kernels::fill(self.stream.exec(), self.bucket.span(), 1.0F);
    const std::uint64_t before = stream_waits();
    self.reducer.all_reduce(self.bucket.span(), 7);
    if (self.transport->rank() == 0) waits = stream_waits() - before;
    self.reducer.synchronize();
    EXPECT_EQ(self.reducer.last().schedule, options.schedule);
  });
  return waits;
}

/// Sizes that nobody knows are copied to the host, which waits for the copy and, meanwhile, for a
/// deadline; not for its stream.
TEST(NcclCalls, TheHostWaitsForNoStream) {
  const auto by = [](const char* compressor, const char* schedule) {
    return Options{
        .compressor = compressor, .schedule = schedule, .min_bytes = 0, .exempt_1d = false};
  };
  EXPECT_EQ(waits_in(by("topk:0.01", "gather")), 0U);
  EXPECT_EQ(waits_in(by("topk:0.01", "shared")), 0U);
  EXPECT_EQ(waits_in(by("topk:0.01,int8", "shared")), 0U);
  EXPECT_EQ(waits_in(by("int8", "balanced")), 0U);
  EXPECT_EQ(waits_in(by("topk:0.01", "balanced")), 0U);
  EXPECT_EQ(waits_in(by("topk:0.01", "doubling")), 0U);
  EXPECT_EQ(waits_in(by("int8", "doubling")), 0U);
  for (const char* const schedule :
       {"two_level:gather", "two_level:shared", "two_level:balanced", "two_level:doubling"}) {
    EXPECT_EQ(waits_in(by("topk:0.01", schedule)), 0U) << schedule;
  }
  EXPECT_GT(waits_in(by("threshold:2", "gather")), 0U);
}

constexpr std::size_t kElements = 1 << 18;

/// The elements that are large on a rank in a call, by number.
using LargeOn = std::size_t (*)(std::size_t rank, std::size_t number);

std::size_t alike(std::size_t, std::size_t number) {
  return number;
}
std::size_t apart(std::size_t rank, std::size_t number) {
  return (rank * kElements / 2 + number) % kElements;
}
std::size_t of_owner_0(std::size_t, std::size_t number) {
  return kernels::Partition(4, kElements).position(0, number);
}

/// Scratch is that of any message from the first call on, and what does not fit into it does not
/// fit into what a block has left.
TEST(NcclCalls, NoLaterMessageAllocates) {
  struct Case {
    const char *compressor, *schedule;
    std::size_t kept;
    LargeOn first, later;
  };
  for (const auto& [compressor, schedule, kept, first, later] :
       {Case{"topk:0.1", "doubling", kElements / 10, alike, apart},  // a longer union
        Case{"topk:0.6", "doubling", kElements * 3 / 5, apart,
             alike},  // the first carry everything
        Case{"topk:0.1", "balanced", kElements / 10, alike, of_owner_0}}) {
    SCOPED_TRACE(testing::Message() << compressor << " by " << schedule);
    Options options = gather(compressor);
    options.schedule = schedule;
    (void)calls_in(4, options, [&](Rank& self) {
      const Exec place = self.stream.exec();
      kernels::PlaceArray<float> bucket(place, kElements);
      const auto rank = static_cast<std::size_t>(self.transport->rank());
      float large = 1;
      const auto call = [&](LargeOn large_on) {
        std::vector<float> gradient(kElements, 0.0F);
        large *= 10;  // than what waits
        for (std::size_t n = 0; n < kept; ++n) gradient[large_on(rank, n)] = large;
        kernels::copy(place, bucket.span(), std::span<const float>(gradient));
        self.reducer.all_reduce(bucket.span(), 8);
        self.reducer.synchronize();
        return self.reducer.last().allocations;
      };
      for (int calls = 0; calls < 3; ++calls) (void)call(first);
      EXPECT_EQ(call(later), 0U);
    });
  }
}

/// Counts first, then messages, then sums.
TEST(NcclCalls, OwnersHearWhatTheyWillGet) {
  Options options = gather("topk:0.01");
  options.schedule = "balanced";
  const Calls calls = calls_in(3, options, [](Rank& self) { self.call(); });
  EXPECT_EQ(calls.sends, 3U * 2U * 3U);
  EXPECT_EQ(calls.receipts, calls.sends);
}

/// What lies between messages does not count.
TEST(NcclCalls, AnAllGatherCountsTheMessagesThatItReplaces) {
  const auto codings = compress::make_compressor("topk:0.01")->codings();
  const std::uint64_t message = compress::message_bytes(kCount, kCount / 100, codings);
  EXPECT_NE(message % 64, 0U);
  for (const int ranks : {1, 3}) {
    (void)calls_in(ranks, gather("topk:0.01"), [&](Rank& self) {
      const std::uint64_t before = self.transport->bytes_sent();
      self.call();
      const std::uint64_t expected = static_cast<std::uint64_t>(ranks - 1) * message;
      EXPECT_EQ(self.reducer.last().wire_bytes, expected);
      EXPECT_EQ(self.transport->bytes_sent() - before, expected);
    });
  }
}

TEST(NcclCalls, AGraphHoldsTheCollective) {
  const Calls calls = calls_in(3, gather("topk:0.01"), [](Rank& self) {
    const Graph graph(self.stream, [&] { self.reducer.all_reduce(self.bucket.span(), 7); });
    graph.launch(self.stream);
    graph.launch(self.stream);
    self.reducer.synchronize();
  });
  EXPECT_EQ(calls.all_gathers, 3U);  // in the capture, and none in replays
  EXPECT_EQ(calls.sends, 0U);
}

}  // namespace
}  // namespace winnow::tests
