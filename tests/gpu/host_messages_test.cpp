// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Host messages over NCCL, the parts of Winnow that need them, and sizes that go first. On models
// of NCCL and of the CUDA runtime.
#include "comm/transport/bridge/host_messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <winnow/conformance/transport.hpp>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>
#include <winnow/topology.hpp>

#include "comm/plan/agreement.hpp"
#include "comm/schedule/exchange.hpp"
#include "comm/transport/bridge/memory_adapter.hpp"
#include "comm/transport/local/local.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"

namespace winnow::tests {
namespace {

using compress::Header;
using conformance::Bytes;
using conformance::pattern;
using conformance::soon;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A host-memory rank over an NCCL rank.
struct Rank {
  Rank(int rank, int ranks, const std::string& path)
      : inner(nccl_transport(
            {.path = path, .job = 42, .rank = rank, .size = ranks, .node = rank / 2}, soon())),
        transport(comm::host_messages(*inner)) {}

  int peer() const { return 1 - transport->rank(); }

  std::unique_ptr<Transport> inner;
  std::shared_ptr<Transport> transport;
  Stream stream;
  Workspace workspace;
};

void run(int ranks, const std::function<void(Rank&)>& body) {
  std::string folder = testing::TempDir() + "winnow_host_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  run_nccl_ranks(ranks, [&](int rank) {
    Rank self(rank, ranks, folder + "/id");
    body(self);
  });
  EXPECT_EQ(::rmdir(folder.c_str()), 0);
}

void run_transports(int ranks, const conformance::RankBody& body) {
  run(ranks, [&](Rank& self) { body(self.transport); });
}

// Its documentation takes back what NCCL's does.
const bool kRegistered = conformance::register_transport(
    "HostMessagesTransport",
    {.rank_counts =
         [] {
           return std::vector{1, 2, 4};
         },
     .run = run_transports,
     .names_ranks = true,
     .left_out = {"RefusesMessagesThatDoNotFitTheirBuffer", "AbortWakesPeersAndSaysWhy",
                  "AbortTakesLongReasons", "AbortOfASubsetReachesItsRanks"}});

TEST(HostMessages, SayWhatTheyAre) {
  run(2, [](Rank& self) {
    EXPECT_TRUE(self.transport->takes(Place::host));
    EXPECT_FALSE(self.transport->takes(Place::cuda));
    EXPECT_FALSE(self.transport->sizes_travel());
    conformance::Memory memory;
    conformance::exchange_all({*self.transport, memory}, {0, 1, 100});
    EXPECT_EQ(self.transport->bytes_sent(), self.inner->bytes_sent());
  });
}

TEST(HostMessages, GoBetweenThoseOfTheDevice) {
  run(2, [](Rank& self) {
    const int rank = self.transport->rank();
    const DeviceArray<std::byte> sent(100), received(100);
    sent.upload(pattern(rank, 0, 5, 100), self.stream);
    const Bytes word = pattern(rank, 0, 6, 8);
    Bytes other(8);
    for (int round = 0; round < 3; ++round) {
      self.inner->send(sent.span(), self.peer());
      self.inner->recv(received.span(), self.peer(), nullptr);
      const Ticket first = self.inner->start(self.stream.exec());
      self.transport->send(word, self.peer());
      self.transport->recv(other, self.peer(), nullptr);
      self.transport->wait(self.transport->start({}), soon());
      self.inner->wait(first, soon());
      EXPECT_TRUE(other == pattern(self.peer(), 0, 6, 8));
      EXPECT_TRUE(received.download(self.stream) == pattern(self.peer(), 0, 5, 100));
    }
  });
}

TEST(HostMessages, Reduce) {
  for (const int ranks : {1, 2, 4}) {
    run(ranks, [](Rank& self) {
      Transport& transport = *self.transport;
      const int rank = transport.rank(), size = transport.size();
      const Exec exec{.workspace = &self.workspace};
      std::vector<std::int64_t> sum{rank, 2 * rank, 1};
      transport.all_reduce(exec, sum, ReduceOp::sum, soon());
      EXPECT_EQ(sum, (std::vector<std::int64_t>{size * (size - 1) / 2, size * (size - 1), size}));
      EXPECT_THROW(transport.all_reduce(exec, sum, ReduceOp::average, soon()), UsageError);
    });
  }
}

TEST(HostMessages, EndAtADeadline) {
  run(2, [](Rank& self) {
    Bytes buffer(10);
    self.transport->recv(buffer, self.peer(), nullptr);
    const Ticket ticket = self.transport->start({});
    EXPECT_THAT(
        [&] { self.transport->wait(ticket, Deadline::after(std::chrono::milliseconds(100))); },
        ThrowsMessage<CommError>(HasSubstr("deadline")));
    EXPECT_THROW(self.transport->send(buffer, self.peer()), CommError);
    EXPECT_THROW((void)self.inner->start(self.stream.exec()), CommError);
  });
}

TEST(HostMessages, EndWithAnAbort) {
  run(2, [](Rank& self) {
    Bytes buffer(10);
    self.transport->recv(buffer, self.peer(), nullptr);
    const Ticket ticket = self.transport->start({});
    self.transport->abort("enough");
    EXPECT_THAT([&] { self.transport->wait(ticket, soon()); },
                ThrowsMessage<CommError>(HasSubstr("this rank aborted: enough")));
    EXPECT_THROW(self.inner->wait({}, soon()), CommError);
  });
}

TEST(HostMessages, OfASubset) {
  run(4, [](Rank& self) {
    const int rank = self.transport->rank();
    const std::vector<int> members = rank % 2 == 0 ? std::vector{2, 0} : std::vector{3, 1};
    const auto part = self.transport->subset(members);
    EXPECT_TRUE(part->takes(Place::host));
    std::vector<std::int32_t> sum{rank};
    part->all_reduce({}, sum, ReduceOp::sum, soon());
    EXPECT_EQ(sum[0], members[0] + members[1]);
  });
}

TEST(HostMessages, FindTheNodes) {
  run(4, [](Rank& self) {
    const comm::MemoryAdapter carrier(*self.inner, Place::host);
    const Topology topology = discover(carrier.transport(), soon());
    EXPECT_EQ(topology.nodes(), 2);
    EXPECT_EQ(topology.node_of(3), 1);
    EXPECT_EQ(&comm::MemoryAdapter(*self.inner, Place::cuda).transport(), self.inner.get());
  });
}

TEST(HostMessages, AgreeOnACall) {
  for (const int ranks : {1, 2, 4}) {
    run(ranks, [](Rank& self) {
      const Exec exec{.workspace = &self.workspace};
      Header mine;
      mine.digest = 5;
      mine.count = 1000;
      EXPECT_EQ(comm::agree(*self.transport, exec, mine, {}, soon()), "");
      if (self.transport->size() == 1) return;
      mine.count += self.transport->rank() == 1 ? 1 : 0;
      EXPECT_THAT(comm::agree(*self.transport, exec, mine, {}, soon()),
                  HasSubstr("the count of elements"));
    });
  }
}

/// A part whose messages lie in device memory and whose sizes are open.
struct PartOnDevice {
  explicit PartOnDevice(Transport& world)
      : exchange{.wire = {.world = world, .deadline = soon(), .stats = stats},
                 .compressor = *compressor,
                 .exec = exec,
                 .scaling = {.decay = 1, .factor = 1},
                 .course = {.ring = 0},
                 .part = part,
                 .header = {},
                 .random = {}} {}
  PartOnDevice(const PartOnDevice&) = delete;
  PartOnDevice& operator=(const PartOnDevice&) = delete;

  Stream stream;
  Workspace workspace, device_workspace{kernels::cuda::kDeviceMemory},
      pinned_workspace{kernels::cuda::kPinnedMemory};
  Exec exec{.place = Place::cuda,
            .stream = stream.get(),
            .workspace = &workspace,
            .device_workspace = &device_workspace,
            .pinned_workspace = &pinned_workspace};
  std::unique_ptr<compress::Compressor> compressor = compress::make_compressor("threshold:1");
  compress::Part part;
  Stats stats;
  comm::Exchange exchange;
};

/// Every rank tells every other rank how long a message will be, in words of device memory, and
/// brings a list of its own to the host.
void expect_counts(Transport& world) {
  PartOnDevice on_device(world);
  comm::Exchange& exchange = on_device.exchange;
  const int self = world.rank(), ranks = world.size();
  const auto length = [](int from, int to) {
    return 100 * static_cast<std::uint64_t>(from) + 10 * static_cast<std::uint64_t>(to);
  };
  for (int round = 0; round < 3; ++round) {
    const Workspace::Scope scope(on_device.workspace), device_scope(on_device.device_workspace),
        pinned_scope(on_device.pinned_workspace);
    const DeviceArray<std::byte> list(16);
    list.upload(pattern(self, 0, 0, 16), on_device.stream);
    comm::Counts counts(exchange, "bytes", static_cast<std::size_t>(ranks));
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == self) continue;
      counts.send(counts.word_of(length(self, peer)), peer);
      counts.receive(peer, 1000);
    }
    counts.bring(list.span());
    world.wait(counts.start(), soon());
    counts.finish();
    EXPECT_TRUE(std::ranges::equal(counts.own<std::byte>(0), pattern(self, 0, 0, 16)));
    auto theirs = counts.theirs().begin();
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != self) {
        EXPECT_EQ(*theirs++, length(peer, self));
      }
    }
  }
  EXPECT_EQ(exchange.wire.stats.wire_bytes, world.bytes_sent());
}

TEST(Counts, TravelInDeviceMemoryOverNccl) {
  for (const int ranks : {2, 4}) {
    run(ranks, [](Rank& self) { expect_counts(*self.inner); });
  }
}

TEST(Counts, TravelInDeviceMemoryOverStagedRanks) {
  for (const int ranks : {2, 4}) {
    const auto below = comm::local_transports(ranks, comm::LocalRules::strict);
    run_nccl_ranks(ranks, [&](int rank) {
      expect_counts(*comm::staged(*below[static_cast<std::size_t>(rank)]));
    });
  }
}

/// A later start's messages, which never come, stand on the stream before the counts.
TEST(Counts, AreWaitedForNoLongerThanTheDeadline) {
  run(2, [](Rank& self) {
    Transport& world = *self.inner;
    PartOnDevice on_device(world);
    comm::Exchange& exchange = on_device.exchange;
    const DeviceArray<std::byte> memory(200);
    comm::Counts counts(exchange, "bytes", 1);
    counts.send(counts.word_of(100), self.peer());
    counts.receive(self.peer(), 100);
    world.wait(counts.start(), soon());
    if (self.peer() == 0) return;
    world.recv(memory.span(), self.peer(), nullptr);
    (void)world.start(exchange.exec);
    // `rescue` ends a wait that has no deadline.
    std::promise<void> ended;
    const std::jthread rescue([&world, over = ended.get_future()] {
      if (over.wait_for(std::chrono::seconds(20)) == std::future_status::timeout) world.abort("");
    });
    exchange.wire.deadline = Deadline::after(std::chrono::milliseconds(100));
    EXPECT_THAT([&] { counts.finish(); },
                ThrowsMessage<CommError>(HasSubstr("waited for the counts of messages")));
    ended.set_value();
    world.abort("its peer is gone");
  });
}

TEST(Counts, NeedThePinnedWorkspaceOfADevice) {
  run(2, [](Rank& self) {
    PartOnDevice on_device(*self.inner);
    on_device.exec.pinned_workspace = nullptr;
    const DeviceArray<std::byte> list(8);
    comm::Counts counts(on_device.exchange, "bytes", 1);
    counts.bring(list.span());
    EXPECT_THAT([&] { counts.finish(); },
                ThrowsMessage<UsageError>(HasSubstr("exec.pinned_workspace")));
  });
}

}  // namespace
}  // namespace winnow::tests
