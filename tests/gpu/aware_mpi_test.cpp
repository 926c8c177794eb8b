// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Messages in device memory over an MPI that takes it: nothing is staged. The memory is that of the
// model of CUDA, which any MPI can read, and this program claims that its MPI is CUDA-aware.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>

#include "comm/transport/bridge/memory_adapter.hpp"
#include "compress/compressor.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/gate.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace {
int aware = 1;
}

// Replaces the MPI library's function.
extern "C" __attribute__((visibility("default"))) int MPIX_Query_cuda_support() {
  return aware;
}

namespace winnow::tests {
namespace {

using kernels::cuda::enqueue_copy;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Bytes = std::vector<std::byte>;

constexpr int kRanks = 2;  // a job has its own number of ranks

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

Bytes pattern(int from, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 31 + i / 256 + static_cast<std::size_t>(from) * 101);
  }
  return bytes;
}

TEST(AwareMpi, IsWhatTheLibrarySaysUnlessItIsTurnedOff) {
  run_ranks(kRanks, [](const std::shared_ptr<Transport>& transport) {
    EXPECT_TRUE(transport->takes(Place::cuda));
    EXPECT_TRUE(transport->takes(Place::host));
    EXPECT_EQ(&comm::MemoryAdapter(*transport, Place::cuda).transport(), transport.get());
    const auto host = mpi_transport(MPI_COMM_WORLD, 0, MpiMemory::host);
    EXPECT_FALSE(host->takes(Place::cuda));
    aware = 0;
    const auto plain = mpi_transport(MPI_COMM_WORLD);
    aware = 1;
    EXPECT_FALSE(plain->takes(Place::cuda));
    const Stream stream;
    EXPECT_THAT([&] { (void)plain->start(stream.exec()); },
                ThrowsMessage<UsageError>(HasSubstr("no device memory")));
  });
}

// No message is read, and none is written to its buffer, before the stream gets there.
TEST(AwareMpi, MessagesWaitForTheStream) {
  run_ranks(kRanks, [](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank(), size = transport->size();
    const std::size_t length = 100001;
    const Bytes mine = pattern(rank, length), before(length, std::byte{0x5a});
    const DeviceArray<std::byte> sent(length);
    std::vector<std::unique_ptr<DeviceArray<std::byte>>> received;
    const Stream stream;
    Gate gate(stream);
    enqueue_copy(sent.span(), mine, stream);
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      received.push_back(std::make_unique<DeviceArray<std::byte>>(length + 10));
      if (peer == rank) continue;
      enqueue_copy(received.back()->span().first(length), before, stream);
      transport->send(sent.span(), peer);
      transport->recv(received.back()->span(), peer, &sizes[static_cast<std::size_t>(peer)]);
    }
    const Ticket ticket = transport->start(stream.exec());
    EXPECT_EQ(transport->test(ticket, soon()), size == 1);
    // Host messages that start later arrive later.
    const std::byte word{7};
    std::byte others{};
    if (rank == 0 && size > 1) transport->recv({&others, 1}, 1, nullptr);
    if (rank == 1) transport->send({&word, 1}, 0);
    const Ticket last = transport->start({});
    const std::jthread opener = gate.open_soon();
    transport->wait(ticket, soon());
    transport->wait(last, soon());
    EXPECT_EQ(others, rank == 0 && size > 1 ? std::byte{7} : std::byte{});
    const Stream other;  // received messages are ready for it, too
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      Bytes all = received[static_cast<std::size_t>(peer)]->download(other);
      all.resize(length);
      EXPECT_TRUE(all == pattern(peer, length));
      EXPECT_EQ(sizes[static_cast<std::size_t>(peer)], length);
    }
  });
}

TEST(AwareMpi, ADeadlineEndsAWaitForTheStream) {
  run_ranks(kRanks, [](const std::shared_ptr<Transport>& transport) {
    if (transport->size() == 1) return;
    const DeviceArray<std::byte> memory(10);
    const Stream stream;
    const Gate gate(stream);
    transport->send(memory.span(), transport->rank() == 0 ? 1 : 0);
    const Ticket ticket = transport->start(stream.exec());
    EXPECT_THROW(transport->wait(ticket, Deadline::after(std::chrono::milliseconds(50))),
                 CommError);
    EXPECT_THROW((void)transport->start(stream.exec()), CommError);
  });
}

// MPI's own operations run on device memory; the ring serves for Winnow's.
TEST(AwareMpi, AllReduceOfEveryKind) {
  run_ranks(kRanks, [](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank(), size = transport->size();
    const Stream stream;
    Workspace workspace, device_workspace(kernels::cuda::kDeviceMemory);
    const Exec exec{.place = Place::cuda,
                    .stream = stream.get(),
                    .workspace = &workspace,
                    .device_workspace = &device_workspace};
    const std::vector<float> floats(1001, static_cast<float>(rank + 1));
    const std::vector<std::int32_t> integers(1001, rank + 5);
    const DeviceArray<float> sum(floats.size());
    const DeviceArray<std::int32_t> highest(integers.size());
    enqueue_copy(sum.span(), floats, stream);
    enqueue_copy(highest.span(), integers, stream);
    transport->all_reduce(exec, sum.span(), ReduceOp::sum, soon());
    transport->all_reduce(exec, highest.span(), ReduceOp::maximum, soon());
    EXPECT_EQ(sum.download(stream),
              std::vector<float>(floats.size(), static_cast<float>(size * (size + 1) / 2)));
    EXPECT_EQ(highest.download(stream), std::vector<std::int32_t>(integers.size(), size + 4));
  });
}

const std::vector<Parameter> kParameters = {{1, 5000}, {2, 300, 1}, {3, 2000}};

TEST(AwareMpi, CallsEqualTheReference) {
  run_ranks(kRanks, [](const std::shared_ptr<Transport>& transport) {
    for (const std::string schedule : {"gather", "balanced"}) {
      Reducer reducer(transport, {.compressor = "topk:0.05,int4",
                                  .schedule = schedule,
                                  .min_bytes = 0,
                                  .exempt_1d = false});
      Reference reference(transport->size(), kParameters,
                          {.density = 0.05,
                           .balanced = schedule == "balanced",
                           .value = compress::make_compressor("topk:0.05,int4")->codings().value});
      TestBucket bucket(kParameters);
      for (int step = 0; step < 3; ++step) {
        bucket.fill(Kind::heavy_tailed, transport->rank(), step);
        reducer.all_reduce(bucket.segments());
        const auto expected =
            reference.step(all_gradients(kParameters, Kind::heavy_tailed, transport->size(), step));
        for (std::size_t p = 0; p < kParameters.size(); ++p) {
          EXPECT_TRUE(same_bits(bucket.values()[p], expected[p])) << schedule << " step " << step;
        }
      }
    }
  });
}

}  // namespace
}  // namespace winnow::tests
