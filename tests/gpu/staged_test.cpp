// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Device messages staged over host-memory ranks: threads, or two MPI ranks. The model of the CUDA
// runtime runs work as late as it may: a copy that nobody waits for has not happened.
#include "comm/transport/bridge/staged.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <winnow/conformance/transport.hpp>
#include <winnow/error.hpp>
#include <winnow/topology.hpp>

#include "comm/transport/bridge/memory_adapter.hpp"
#include "comm/transport/bridge/staging.hpp"
#include "comm/transport/growing.hpp"
#include "lab/reference/place.hpp"
#include "lab/simulated/simulated.hpp"
#include "tests/gpu/device_memory.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/gate.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/ranks_world.hpp"

namespace winnow::tests {
namespace {

using conformance::Bytes;
using conformance::pattern;
using conformance::soon;
using kernels::cuda::enqueue_copy;
using testing::HasSubstr;
using testing::ThrowsMessage;

Deadline briefly() {
  return Deadline::after(std::chrono::milliseconds(100));
}

/// A device-memory rank over a host-memory rank.
struct Rank {
  explicit Rank(std::shared_ptr<Transport> below)
      : inner(std::move(below)), transport(comm::staged(*inner)) {}

  Exec exec() { return {.place = Place::cuda, .stream = stream.get(), .workspace = &workspace}; }
  int peer() const { return 1 - transport->rank(); }

  DeviceMemory memory;
  std::shared_ptr<Transport> inner;
  std::unique_ptr<Transport> transport;
  Stream stream;
  Workspace workspace;
};

void run(int ranks, const std::function<void(Rank&)>& body) {
  run_ranks(ranks, [&](const std::shared_ptr<Transport>& below) {
    Rank self(below);
    body(self);
  });
}

/// Device memory with its content enqueued; nothing has been waited for.
struct OnDevice {
  OnDevice(Bytes bytes, const Stream& stream) : host(std::move(bytes)), device(host.size()) {
    enqueue_copy(device.span(), host, stream);
  }
  Bytes host;
  DeviceArray<std::byte> device;
};

void exchange_all(Rank& self, const std::vector<std::size_t>& sizes, std::size_t slack = 0,
                  std::size_t per_start = 1) {
  conformance::exchange_all({*self.transport, self.memory}, sizes, slack, per_start);
  EXPECT_EQ(self.transport->bytes_sent(), self.inner->bytes_sent());
}

conformance::World staged_world() {
  conformance::World world = ranks_world();
  world.rank_counts = [] {  // four show what seven would
    std::vector counts(rank_counts().begin(), rank_counts().end());
    if (counts.size() > 1) std::erase(counts, 7);
    return counts;
  };
  world.memory = [] { return std::make_unique<DeviceMemory>(); };
  world.run = [](int ranks, const conformance::RankBody& body) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& below) {
      const std::shared_ptr<Transport> staged = comm::staged(*below);
      body(staged);
    });
  };
  return world;
}
const bool kRegistered = conformance::register_transport("StagedTransport", staged_world());

constexpr std::size_t kChunk = std::size_t{1} << 20;  // bytes per copy

TEST(Staged, LongMessagesAreCopiedInChunks) {
  run(2, [](Rank& self) {
    const std::vector<std::size_t> sizes{kChunk - 1, kChunk, kChunk + 1, 0, 3 * kChunk + 5, 3};
    exchange_all(self, sizes);
    exchange_all(self, sizes, kChunk + 3, 4);
  });
}

// All peers get one copy; a message of another length is another message.
TEST(Staged, AMessageMayGoToSeveralPeers) {
  for (const int ranks : rank_counts()) {
    run(ranks, [](Rank& self) {
      Transport& transport = *self.transport;
      const int rank = transport.rank();
      const std::size_t length = kChunk + 100, second = 10;
      const OnDevice sent(pattern(rank, 0, 0, length), self.stream);
      std::vector<std::unique_ptr<DeviceArray<std::byte>>> received;
      for (const std::size_t bytes : {second, length}) {
        for (int peer = 0; peer < transport.size(); ++peer) {
          received.push_back(std::make_unique<DeviceArray<std::byte>>(bytes));
          if (peer == rank) continue;
          transport.send(sent.device.span().first(bytes), peer);
          transport.recv(received.back()->span(), peer, nullptr);
        }
      }
      transport.wait(transport.start(self.exec()), soon());
      for (std::size_t i = 0; i < received.size(); ++i) {
        const int peer = static_cast<int>(i) % transport.size();
        if (peer == rank) continue;
        Bytes expected = pattern(peer, 0, 0, length);
        if (i < received.size() / 2) expected.resize(second);
        EXPECT_TRUE(received[i]->download(self.stream) == expected) << i;
      }
    });
  }
}

TEST(Staged, ALongMessageBeyondItsBufferIsAnError) {
  for (const std::size_t room : {std::size_t{10}, kChunk, 3 * kChunk - 1}) {
    run(2, [&](Rank& self) {
      Transport& transport = *self.transport;
      const DeviceArray<std::byte> memory(3 * kChunk);
      if (transport.rank() == 0) {
        transport.send(memory.span(), 1);
        EXPECT_THROW(transport.wait(transport.start(self.exec()), soon()), CommError);
      } else {
        transport.recv(memory.span().first(room), 0, nullptr);
        const Ticket ticket = transport.start(self.exec());
        EXPECT_THAT([&] { transport.wait(ticket, soon()); },
                    ThrowsMessage<CommError>(HasSubstr(std::to_string(room))));
        transport.abort("as the receiver should");
      }
    });
  }
}

// Over MPI, in pieces: the receiver has the first piece before the sender has the rest.
TEST(GrowingMessages, GoWhileTheyAreWritten) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto* const growing = dynamic_cast<comm::GrowingMessages*>(transport.get());
    if (growing == nullptr) return;
    constexpr std::size_t kBytes = 1000000;
    Bytes message = pattern(0, 1, 0, kBytes);
    std::byte word{};
    std::uint64_t there = 0, message_bytes = 0;
    if (transport->rank() == 0) {
      std::uint64_t written = kBytes / 2;
      growing->send_growing(message, 1, &written);
      growing->recv_growing({&word, 1}, 1, nullptr, &there);
      const Ticket ticket = transport->start({});
      while (there == 0) EXPECT_FALSE(transport->test(ticket, soon()));
      written = kBytes;
      transport->wait(ticket, soon());
    } else {
      Bytes received(kBytes + 10);
      growing->recv_growing(received, 0, &message_bytes, &there);
      const Ticket ticket = transport->start({});
      const Deadline deadline = soon();
      while (there < kBytes / 2 - 100000) EXPECT_FALSE(transport->test(ticket, deadline));
      EXPECT_LE(there, kBytes / 2);
      EXPECT_TRUE(std::equal(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(there),
                             received.begin()));
      transport->send({&word, 1}, 0);
      transport->wait(transport->start({}), deadline);
      EXPECT_EQ(there, kBytes);
      EXPECT_EQ(message_bytes, kBytes);
      received.resize(kBytes);
      EXPECT_TRUE(received == message);
    }
  });
}

TEST(Staged, SaysWhatItIsLikeTheOneBelow) {
  run(1, [](Rank& self) {
    EXPECT_TRUE(self.transport->takes(Place::cuda));
    EXPECT_FALSE(self.transport->takes(Place::host));
    EXPECT_FALSE(self.transport->takes(lab::kReference));
    EXPECT_TRUE(self.inner->takes(Place::host));
    EXPECT_TRUE(self.inner->takes(lab::kReference));
    EXPECT_EQ(self.transport->sizes_travel(), self.inner->sizes_travel());
    EXPECT_EQ(self.transport->node(), self.inner->node());
    EXPECT_EQ(self.transport->allows_threads(), self.inner->allows_threads());
    EXPECT_EQ(self.transport->native_all_reduce(), self.inner->native_all_reduce());
    EXPECT_EQ(&comm::MemoryAdapter(*self.inner, Place::host).transport(), self.inner.get());
    EXPECT_TRUE(comm::MemoryAdapter(*self.inner, Place::cuda).transport().takes(Place::cuda));
    EXPECT_THAT([&] { (void)comm::staged(*self.transport); },
                ThrowsMessage<UsageError>(HasSubstr("host memory")));
  });
}

TEST(Staged, RefusesWhatItCannotMove) {
  run(2, [](Rank& self) {
    Transport& transport = *self.transport;
    EXPECT_THAT([&] { (void)transport.start({}); },
                ThrowsMessage<UsageError>(HasSubstr("Exec::stream")));
    EXPECT_THROW(transport.send({}, transport.rank()), UsageError);
    EXPECT_THROW(transport.recv({}, 2, nullptr), UsageError);
    EXPECT_THROW(transport.wait(Ticket{1}, soon()), UsageError);
    const DeviceArray<float> elements(4);
    EXPECT_THROW(transport.all_reduce(self.exec(), elements.span(), ReduceOp::average, soon()),
                 UsageError);
    EXPECT_THROW(transport.all_reduce({}, elements.span(), ReduceOp::sum, soon()), UsageError);
    // Required by the inner transport.
    EXPECT_THAT([&] { transport.reduce_scatter(self.stream.exec(), elements.span(), soon()); },
                ThrowsMessage<UsageError>(HasSubstr("Exec::workspace")));
    EXPECT_THROW(transport.all_gather(self.exec(), std::as_bytes(elements.span()),
                                      std::as_writable_bytes(elements.span()), soon()),
                 UsageError);
    exchange_all(self, {10});  // and nothing of it was enqueued
  });
}

TEST(Staged, ADeadlineEndsAWaitForTheDevice) {
  run(2, [](Rank& self) {
    Transport& transport = *self.transport;
    const DeviceArray<std::byte> memory(100);
    if (transport.rank() == 0) {
      const Gate gate(self.stream);
      transport.send(memory.span(), 1);
      const Ticket ticket = transport.start(self.exec());
      EXPECT_THAT([&] { transport.wait(ticket, briefly()); },
                  ThrowsMessage<CommError>(HasSubstr("between the host and the device")));
      EXPECT_THROW((void)transport.start(self.exec()), CommError);
    } else {
      transport.recv(memory.span(), 0, nullptr);
      const Ticket ticket = transport.start(self.exec());
      EXPECT_THAT([&] { transport.wait(ticket, soon()); },
                  ThrowsMessage<CommError>(HasSubstr("rank 0 aborted: the deadline passed")));
    }
    self.stream.synchronize();
  });
}

// Copies on two streams end in any order; messages keep theirs.
TEST(Staged, MessagesGoInTheOrderOfTheStarts) {
  run(2, [](Rank& self) {
    Transport& transport = *self.transport;
    const auto part = transport.subset(std::vector{0, 1});
    if (transport.rank() == 0) {
      const Stream other;
      const OnDevice second(pattern(0, 1, 2, 100), other), third(pattern(0, 1, 3, 100), other);
      Gate gate(self.stream);
      const OnDevice first(pattern(0, 1, 1, 100), self.stream);
      transport.send(first.device.span(), 1);
      (void)transport.start(self.exec());
      transport.send(second.device.span(), 1);
      const Ticket ticket = transport.start(other.exec());
      part->send(third.device.span(), 1);
      const Ticket last = part->start(other.exec());
      part->progress();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      gate.open();
      transport.wait(ticket, soon());
      part->wait(last, soon());
    } else {
      const DeviceArray<std::byte> received(300);
      for (std::size_t n = 0; n < 3; ++n) {
        Transport& from = n == 2 ? *part : transport;
        from.recv(received.span().subspan(n * 100, 100), 0, nullptr);
        from.wait(from.start(self.exec()), soon());
      }
      const Bytes all = received.download(self.stream);
      for (std::size_t n = 0; n < 3; ++n) {
        const Bytes message(all.begin() + static_cast<std::ptrdiff_t>(n * 100),
                            all.begin() + static_cast<std::ptrdiff_t>(n * 100 + 100));
        EXPECT_TRUE(message == pattern(0, 1, n + 1, 100)) << n;
      }
    }
  });
}

// Rank 0's message comes once rank 1 has what rank 0 started later.
TEST(Staged, AWaitLetsLaterStartsGo) {
  run(2, [](Rank& self) {
    Transport& transport = *self.transport;
    if (!transport.sizes_travel()) return;  // NCCL groups wait for those before them
    const DeviceArray<std::byte> sent(10), received(10);
    transport.recv(received.span(), self.peer(), nullptr);
    if (transport.rank() == 0) {
      const Stream other;
      const Ticket awaited = transport.start(other.exec());
      Gate gate(self.stream);
      transport.send(sent.span(), 1);
      const Ticket later = transport.start(self.exec());
      const std::jthread opener = gate.open_soon();
      EXPECT_NO_THROW(transport.wait(awaited, soon()));
      EXPECT_NO_THROW(transport.wait(later, soon()));
    } else {
      transport.wait(transport.start(self.exec()), soon());
      transport.send(sent.span(), 0);
      transport.wait(transport.start(self.exec()), soon());
    }
  });
}

template <class T>
std::vector<T> values(int rank, std::size_t count) {
  std::minstd_rand random(static_cast<unsigned>(rank) + 1);
  std::vector<T> all(count);
  for (T& value : all) value = static_cast<T>(1 + random() % 1000000) / static_cast<T>(7);
  return all;
}

/// The bits equal those of the inner transport on host memory.
template <class T>
void expect_same_reduction(Rank& self, ReduceOp op) {
  const Exec host{.workspace = &self.workspace};
  for (const std::size_t count : {0U, 1U, 2U, 5U, 1001U, 200003U}) {
    const std::vector<T> mine = values<T>(self.transport->rank(), count);
    std::vector<T> expected = mine;
    self.inner->all_reduce(host, expected, op, soon());
    const DeviceArray<T> elements(count);
    enqueue_copy(elements.span(), mine, self.stream);
    self.transport->all_reduce(self.exec(), elements.span(), op, soon());
    EXPECT_EQ(elements.download(self.stream), expected) << count;
  }
}

TEST(Staged, AllReduceHasTheBitsOfTheOneBelow) {
  for (const int ranks : rank_counts()) {
    run(ranks, [](Rank& self) {
      expect_same_reduction<float>(self, ReduceOp::sum);
      expect_same_reduction<double>(self, ReduceOp::sum);
      expect_same_reduction<std::int32_t>(self, ReduceOp::maximum);
      expect_same_reduction<std::uint8_t>(self, ReduceOp::product);
      EXPECT_EQ(self.inner->bytes_sent(), 2 * self.transport->bytes_sent());
    });
  }
}

TEST(Staged, ReduceScatterHasTheBitsOfTheOneBelow) {
  for (const int ranks : rank_counts()) {
    run(ranks, [](Rank& self) {
      const Exec host{.workspace = &self.workspace};
      for (const std::size_t count : {0U, 1U, 4000U, 4003U, 200003U}) {
        const std::vector<float> mine = values<float>(self.transport->rank(), count);
        std::vector<float> expected = mine;
        self.inner->reduce_scatter(host, expected, soon());
        const DeviceArray<float> elements(count);
        enqueue_copy(elements.span(), mine, self.stream);
        self.transport->reduce_scatter(self.exec(), elements.span(), soon());
        const std::vector<float> reduced = elements.download(self.stream);
        const Chunk own = ring_chunk(count, self.transport->rank(), self.transport->size());
        for (std::uint64_t i = own.begin; i < own.end; ++i) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(reduced[i]),
                    std::bit_cast<std::uint32_t>(expected[i]));
        }
      }
    });
  }
}

// A collective waits for started messages, which the peers may need first.
TEST(Staged, CollectivesComeAfterTheMessagesBeforeThem) {
  run(2, [](Rank& self) {
    Transport& transport = *self.transport;
    const OnDevice sent(pattern(transport.rank(), 0, 0, 100), self.stream);
    const DeviceArray<std::byte> received(100);
    const DeviceArray<std::int32_t> sum(1);
    sum.upload(std::vector<std::int32_t>{transport.rank() + 1}, self.stream);
    const Stream other;
    Gate gate(self.stream);
    const std::jthread opener = gate.open_soon();
    transport.send(sent.device.span(), self.peer());
    transport.recv(received.span(), self.peer(), nullptr);
    const Ticket ticket = transport.start(self.exec());
    Exec exec = other.exec();
    exec.workspace = &self.workspace;
    transport.all_reduce(exec, sum.span(), ReduceOp::sum, soon());
    transport.wait(ticket, soon());
    EXPECT_EQ(sum.download(other)[0], 3);
    EXPECT_TRUE(received.download(other) == pattern(self.peer(), 0, 0, 100));
  });
}

TEST(Staged, GoesOverSimulatedRanks) {
  const comm::SimulatedWorld world{.topology = Topology::uniform(1, 3)};
  world.run([](const std::shared_ptr<comm::SimulatedTransport>& below) {
    Rank self(below);
    exchange_all(self, {5, 0, 70, 100003, 9}, 7, 2);
    expect_same_reduction<float>(self, ReduceOp::sum);
  });
}

TEST(Staged, ASubsetThatIsAbortedTakesTheRestWithIt) {
  run(2, [](Rank& self) {
    const auto part = self.transport->subset(std::vector{0, 1});
    EXPECT_TRUE(part->takes(Place::cuda));
    part->abort("enough");
    EXPECT_THROW((void)self.transport->start(self.exec()), CommError);
  });
}

int allocated = 0;

// Steps of one shape reuse the memory of the first.
TEST(Staging, LendsItsBlocksAgain) {
  const MemorySource counting{.allocate =
                                  [](std::size_t bytes) {
                                    ++allocated;
                                    return new std::byte[bytes];
                                  },
                              .release =
                                  [](std::byte* memory) noexcept {
                                    --allocated;
                                    delete[] memory;
                                  }};
  {
    comm::Staging staging(counting);
    for (int step = 0; step < 3; ++step) {
      auto& large = staging.take(100000);
      auto& small = staging.take(10);
      EXPECT_GE(large.memory.size(), 100000U);
      EXPECT_LE(large.memory.size(), 125000U);
      EXPECT_NE(large.memory.data(), small.memory.data());
      comm::Staging::give_back(small);
      auto& none = staging.take(0);
      EXPECT_EQ(none.memory.data(), small.memory.data());  // the least that will do
      comm::Staging::give_back(large);
      EXPECT_EQ(staging.take(101000).memory.data(), large.memory.data());
      comm::Staging::give_back(large);
      comm::Staging::give_back(none);
    }
    EXPECT_EQ(allocated, 2);
  }
  EXPECT_EQ(allocated, 0);
}

}  // namespace
}  // namespace winnow::tests
