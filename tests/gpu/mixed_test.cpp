// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// NCCL within nodes and host-memory ranks between them, as one transport; and calls over it. On
// models of NCCL and of the CUDA runtime; ranks are threads. The tests of all transports, run with
// --mixed, check what also holds for host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/conformance/transport.hpp>
#include <winnow/error.hpp>
#include <winnow/mixed.hpp>
#include <winnow/nccl.hpp>
#include <winnow/topology.hpp>

#include "compress/compressor.hpp"
#include "tests/gpu/device_memory.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/gate.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"
#include "tests/model/nccl_model.hpp"

namespace winnow::tests {
namespace {

using conformance::Bytes;
using conformance::pattern;
using conformance::soon;
using kernels::cuda::enqueue_copy;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Replaces MPI: host-memory ranks on nodes.
class HostRanks final : public ForwardingTransport {
 public:
  HostRanks(std::shared_ptr<Transport> inner, int node)
      : ForwardingTransport(std::move(inner)), node_(node) {}
  int node() const override { return node_; }
  bool takes(Place place) const override { return place != Place::cuda; }
  std::unique_ptr<Transport> duplicate(Deadline deadline) override {
    return std::make_unique<HostRanks>(inner()->duplicate(deadline), node_);
  }

 private:
  int node_;
};

struct Rank {
  Exec exec() { return {.place = Place::cuda, .stream = stream.get(), .workspace = &workspace}; }

  DeviceMemory memory;
  std::shared_ptr<Transport> world, node, transport;
  Stream stream;
  Workspace workspace;
};

void run(const char* shape, const std::function<void(Rank&)>& body,
         const NcclOptions& options = {}) {
  const Topology topology = Topology::parse(shape);
  auto below = local_transports(topology.ranks());
  std::string folder = testing::TempDir() + "winnow_mixed_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  run_nccl_ranks(topology.ranks(), [&](int rank) {
    const int node = topology.node_of(rank);
    const auto members = topology.members(node);
    Rank self;
    self.world =
        std::make_shared<HostRanks>(std::move(below[static_cast<std::size_t>(rank)]), 10 + node);
    self.node = nccl_transport({.path = folder + "/id" + std::to_string(node),
                                .job = 5,
                                .rank = rank - members.front(),
                                .size = static_cast<int>(members.size())},
                               soon(), options);
    self.transport = mixed_transport(self.world, self.node, soon());
    body(self);
  });
  EXPECT_EQ(::rmdir(folder.c_str()), 0);
}

/// Device memory with its content enqueued; nothing has been waited for.
struct OnDevice {
  OnDevice(Bytes bytes, const Stream& stream) : host(std::move(bytes)), device(host.size()) {
    enqueue_copy(device.span(), host, stream);
  }
  Bytes host;
  DeviceArray<std::byte> device;
};

void exchange_all(Rank& self, const std::vector<std::size_t>& sizes) {
  conformance::exchange_all({*self.transport, self.memory}, sizes, 0, 2);
}

void run_transports(int ranks, const conformance::RankBody& body) {
  std::latch all_made(ranks);
  run(ranks == 3 ? "2,1" : "2x2", [&](Rank& self) {
    all_made.arrive_and_wait();
    body(self.transport);
  });
}

// Within a node it is up to NCCL what becomes of a message that does not fit its buffer, and what
// waits on a stream holds up what comes after it there.
const conformance::World kWorld{
    .rank_counts =
        [] {
          return std::vector{3, 4};
        },
    .run = run_transports,
    .memory = [] { return std::make_unique<DeviceMemory>(); },
    .names_ranks = true,
    .left_out = {"RefusesMessagesThatDoNotFitTheirBuffer", "ADuplicateHasAnOrderOfItsOwn"}};
const bool kRegistered =
    conformance::register_transport("MixedTransport", kWorld) &&
    conformance::register_checks("MixedTransport", conformance::kDuplicates, kWorld);

/// Likewise for host memory, one message between each two ranks.
void exchange_on_host(Rank& self) {
  Transport& transport = *self.transport;
  const auto ranks = static_cast<std::size_t>(transport.size());
  std::vector<Bytes> sent(ranks), received(ranks, Bytes(50));
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer == transport.rank()) continue;
    const auto p = static_cast<std::size_t>(peer);
    sent[p] = pattern(transport.rank(), peer, 3, 50);
    transport.send(sent[p], peer);
    transport.recv(received[p], peer, nullptr);
  }
  transport.wait(transport.start({}), soon());
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer == transport.rank()) continue;
    EXPECT_TRUE(received[static_cast<std::size_t>(peer)] == pattern(peer, transport.rank(), 3, 50));
  }
}

TEST(Mixed, SaysWhatBothAre) {
  run("2,1", [](Rank& self) {
    EXPECT_EQ(self.transport->rank(), self.world->rank());
    EXPECT_EQ(self.transport->size(), 3);
    EXPECT_EQ(self.transport->node(), self.world->node());
    EXPECT_TRUE(self.transport->takes(Place::cuda));
    EXPECT_TRUE(self.transport->takes(Place::host));
    EXPECT_FALSE(self.transport->sizes_travel());
    EXPECT_FALSE(self.transport->native_all_reduce());
  });
}

TEST(Mixed, MessagesKeepOrderSizeAndContent) {
  for (const char* shape : {"2x2", "3,1", "1,2,2"}) {
    run(shape, [](Rank& self) {
      exchange_all(self, {0, 1, 63, 64, 65, 0, 1000, 4097, 100001, 3});
      exchange_on_host(self);
      exchange_all(self, std::vector<std::size_t>(20, 17));
      // Messages within a node go over NCCL, except those of host memory.
      const std::uint64_t to_each = 0 + 1 + 63 + 64 + 65 + 0 + 1000 + 4097 + 100001 + 3 + 20 * 17;
      const auto peers = static_cast<std::uint64_t>(self.node->size() - 1);
      EXPECT_EQ(self.node->bytes_sent(), peers * to_each);
      EXPECT_EQ(self.transport->bytes_sent(),
                static_cast<std::uint64_t>(self.transport->size() - 1) * (to_each + 50));
    });
  }
}

// If one of the two transports is enough, it is used directly.
TEST(Mixed, IsNoMoreThanIsNeeded) {
  run("1x3", [](Rank& self) { EXPECT_EQ(self.transport, self.node); });
  run("3x1", [](Rank& self) { EXPECT_EQ(self.transport, self.world); });
}

// Rank 0 sends to another node, and receives within its own node what comes only after that. If
// NCCL's group came first on the stream or in the wait, rank 0 would wait for itself.
TEST(Mixed, WhatANodeWaitsForMayComeByAnother) {
  run("2x2", [](Rank& self) {
    Transport& transport = *self.transport;
    const int rank = transport.rank();
    if (rank == 3) return;
    const OnDevice sent(pattern(rank, 0, 0, 100), self.stream);
    const DeviceArray<std::byte> received(100);
    const int next = (rank + 2) % 3, previous = (rank + 1) % 3;  // 0 -> 2 -> 1 -> 0
    if (rank == 0) {
      Gate gate(self.stream);  // nothing has been sent when start returns
      transport.send(sent.device.span(), next);
      transport.recv(received.span(), previous, nullptr);
      const Ticket ticket = transport.start(self.exec());
      const std::jthread opener = gate.open_soon();
      transport.wait(ticket, soon());
    } else {
      transport.recv(received.span(), previous, nullptr);
      transport.wait(transport.start(self.exec()), soon());
      transport.send(sent.device.span(), next);
      transport.wait(transport.start(self.exec()), soon());
    }
    EXPECT_TRUE(received.download(self.stream) == pattern(previous, 0, 0, 100));
  });
}

// A message from another node does not wait for a group that was started later.
TEST(Mixed, WhatComesFromAnotherNodeIsThereBeforeLaterGroups) {
  std::promise<void> has_come;
  run("2,1", [&](Rank& self) {
    Transport& transport = *self.transport;
    const OnDevice sent(pattern(transport.rank(), 0, 0, 100), self.stream);
    const DeviceArray<std::byte> question(100), answer(100);
    if (transport.rank() == 0) {
      transport.recv(question.span(), 2, nullptr);
      const Ticket first = transport.start(self.exec());
      transport.recv(answer.span(), 1, nullptr);
      const Ticket second = transport.start(self.exec());
      EXPECT_NO_THROW(transport.wait(first, soon()));
      const Stream other;
      EXPECT_TRUE(question.download(other) == pattern(2, 0, 0, 100));
      has_come.set_value();
      transport.wait(second, soon());
      EXPECT_TRUE(answer.download(self.stream) == pattern(1, 0, 0, 100));
    } else {
      if (transport.rank() == 1) has_come.get_future().wait();
      transport.send(sent.device.span(), 0);
      transport.wait(transport.start(self.exec()), soon());
    }
  });
}

TEST(Mixed, CarriesOneKindOfMemoryAtATime) {
  run("2,1", [](Rank& self) {
    Transport& transport = *self.transport;
    const Ticket ticket = transport.start(self.exec());
    EXPECT_THAT([&] { (void)transport.start({}); },
                ThrowsMessage<UsageError>(HasSubstr("wait for what was started")));
    transport.wait(ticket, soon());
    exchange_on_host(self);
    exchange_all(self, {10});
  });
}

TEST(Mixed, RefusesNodesThatAreNotThoseOfTheWorld) {
  auto below = local_transports(2);
  auto other = local_transports(2);
  run_nccl_ranks(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::shared_ptr<Transport> node = std::move(other[r]);
    const auto apart = std::make_shared<HostRanks>(std::move(below[r]), rank);
    EXPECT_THAT([&] { (void)mixed_transport(apart, node, soon()); },
                ThrowsMessage<UsageError>(HasSubstr("rank 0 of 1 on its node")));
    EXPECT_THROW((void)mixed_transport(nullptr, node, soon()), UsageError);
  });
}

TEST(Mixed, AnAbortReachesAllNodes) {
  std::latch all_made(4);
  run("2x2", [&](Rank& self) {
    Transport& transport = *self.transport;
    all_made.arrive_and_wait();
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others are waiting
      transport.abort("enough");
    } else {
      const DeviceArray<std::byte> buffer(100);
      const int peer = transport.rank() ^ 1;  // on the same node
      transport.recv(buffer.span(), peer, nullptr);
      const Ticket ticket = transport.start(self.exec());
      EXPECT_THAT([&] { transport.wait(ticket, soon()); },
                  ThrowsMessage<CommError>(HasSubstr("rank 1 aborted: enough")));
    }
    EXPECT_THROW((void)transport.start(self.exec()), CommError);
    EXPECT_THROW((void)self.node->start(self.exec()), CommError);
    self.stream.synchronize();  // nothing is left to wait for a peer
  });
}

TEST(Mixed, ADeadlineEndsAWaitForARankOfTheNode) {
  run("1,2", [](Rank& self) {
    Transport& transport = *self.transport;
    if (transport.rank() == 2) return;
    const DeviceArray<std::byte> buffer(100);
    transport.recv(buffer.span(), transport.rank() == 0 ? 1 : 2, nullptr);
    const Ticket ticket = transport.start(self.exec());
    const char* const why = transport.rank() == 0 ? "rank 1" : "in the node of rank 1, rank 2: ";
    EXPECT_THAT([&] { transport.wait(ticket, Deadline::after(std::chrono::milliseconds(100))); },
                ThrowsMessage<CommError>(HasSubstr(why)));
    EXPECT_THROW(transport.send(buffer.span(), 2), CommError);
    EXPECT_THROW(transport.wait(ticket, soon()), CommError);
  });
}

const std::vector<Parameter> kParameters = {{1, 5000}, {2, 300, 1}, {3, 2000}};

struct Case {
  const char* schedule;
  const char* compressor;
  double density;
};

/// Compares some steps of a bucket with the reference, bit for bit.
void expect_equals_reference(const std::shared_ptr<Transport>& transport, const Case& c) {
  Reducer reducer(
      transport,
      {.compressor = c.compressor, .schedule = c.schedule, .min_bytes = 0, .exempt_1d = false});
  Reference reference(transport->size(), kParameters,
                      {.density = c.density,
                       .balanced = c.schedule == std::string("balanced"),
                       .value = compress::make_compressor(c.compressor)->codings().value});
  TestBucket bucket(kParameters);
  for (int step = 0; step < 3; ++step) {
    bucket.fill(Kind::heavy_tailed, transport->rank(), step);
    reducer.all_reduce(bucket.segments());
    const auto expected =
        reference.step(all_gradients(kParameters, Kind::heavy_tailed, transport->size(), step));
    for (std::size_t p = 0; p < kParameters.size(); ++p) {
      EXPECT_TRUE(same_bits(bucket.values()[p], expected[p]))
          << c.schedule << " step " << step << " parameter " << p;
      EXPECT_TRUE(
          same_bits(reducer.residual(kParameters[p].id), reference.residual(transport->rank(), p)));
    }
  }
  EXPECT_EQ(reducer.last().schedule, c.schedule);
}

TEST(MixedAllReducer, EqualsReference) {
  for (const char* shape : {"2x2", "3,1,1"}) {
    run(shape, [](Rank& self) {
      expect_equals_reference(self.transport, {"gather", "topk:0.01", 0.01});
      expect_equals_reference(self.transport, {"gather", "int8", 1});
      expect_equals_reference(self.transport, {"balanced", "topk:0.05", 0.05});
      expect_equals_reference(self.transport, {"balanced", "topk:0.05,int4", 0.05});
    });
  }
}

/// The model of NCCL fails the test where one end of a message alone is registered.
TEST(MixedAllReducer, RegistersItsScratchWithTheNode) {
  const std::uint64_t before = calls_of("ncclCommRegister");
  run("2x2",
      [](Rank& self) {
        expect_equals_reference(self.transport, {"gather", "topk:0.01", 0.01});
        expect_equals_reference(self.transport, {"balanced", "topk:0.05", 0.05});
        for (const char* const schedule : {"dense", "two_level:gather", "two_level:shared"}) {
          Reducer reducer(self.transport,
                          {.compressor = schedule == std::string("dense") ? "none" : "topk:0.05",
                           .schedule = schedule,
                           .min_bytes = 0,
                           .exempt_1d = false});
          TestBucket bucket(kParameters);
          for (int step = 0; step < 2; ++step) {
            bucket.fill(Kind::heavy_tailed, self.transport->rank(), step);
            reducer.all_reduce(bucket.segments());
          }
          EXPECT_EQ(reducer.last().schedule, schedule);
        }
      },
      {.register_memory = true});
  EXPECT_GT(calls_of("ncclCommRegister"), before);
  EXPECT_EQ(registrations(), 0U);
}

/// NCCL within nodes and host memory between them, in two levels: the same bits as ranks whose
/// buckets lie in host memory.
TEST(MixedAllReducer, TwoLevelsEqualThoseOfTheHost) {
  using Schedules = std::array<const char*, 2>;
  for (const auto& [shape, schedules] :
       {std::pair("2x2", Schedules{"two_level:gather", "two_level:shared"}),
        std::pair("3,1,1", Schedules{"two_level:doubling", "two_level:balanced"})}) {
    run(shape, [&schedules = schedules](Rank& self) {
      const std::shared_ptr<Transport> beside = self.world->duplicate(soon());
      for (const char* schedule : schedules) {
        const Options options{.compressor = "topk:0.05,int8",
                              .schedule = schedule,
                              .min_bytes = 0,
                              .exempt_1d = false};
        AllReducer on_host(beside, options);
        Reducer on_device(self.transport, options);
        TestBucket here(kParameters), there(kParameters);
        for (int step = 0; step < 3; ++step) {
          here.fill(Kind::heavy_tailed, self.transport->rank(), step);
          there.fill(Kind::heavy_tailed, self.transport->rank(), step);
          on_host.all_reduce(here.segments());
          on_device.all_reduce(there.segments());
          for (std::size_t p = 0; p < kParameters.size(); ++p) {
            const std::uint64_t id = kParameters[p].id;
            EXPECT_TRUE(same_bits(there.values()[p], here.values()[p]))
                << schedule << " step " << step << " parameter " << p;
            EXPECT_TRUE(same_bits(on_device.residual(id), on_host.residual(id)))
                << schedule << " step " << step << " residual " << p;
          }
        }
        EXPECT_EQ(on_device.last().schedule, schedule);
      }
    });
  }
}

/// The ring of all ranks in order: the same bits as that ring over host memory.
TEST(MixedAllReducer, DenseIsTheRing) {
  auto below = local_transports(4);
  run("2x2", [&](Rank& self) {
    const int rank = self.transport->rank();
    const std::vector<float> mine = make_gradient(Kind::heavy_tailed, 70001, rank, 0, 1);
    std::vector<float> expected = mine;
    below[static_cast<std::size_t>(rank)]->all_reduce({.workspace = &self.workspace}, expected,
                                                      ReduceOp::sum, soon());
    const DeviceArray<float> elements(mine.size());
    elements.upload(mine, self.stream);
    Workspace scratch(kernels::cuda::kDeviceMemory);
    Exec exec = self.exec();
    exec.device_workspace = &scratch;
    self.transport->all_reduce(exec, elements.span(), ReduceOp::sum, soon());
    EXPECT_TRUE(same_bits(elements.download(self.stream), expected));
  });
}

}  // namespace
}  // namespace winnow::tests
