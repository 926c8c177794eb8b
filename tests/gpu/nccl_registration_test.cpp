// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Which memory NCCL transports register, and when. The model of NCCL fails a test that breaks
// NCCL's rules: see nccl_model.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/model/nccl_model.hpp"

namespace winnow::tests {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr NcclOptions kRegistering{.register_memory = true};

Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

std::uint64_t registered() {
  return calls_of("ncclCommRegister");
}
std::uint64_t deregistered() {
  return calls_of("ncclCommDeregister");
}

/// One rank over NCCL.
struct Rank {
  int rank() const { return transport->rank(); }
  /// Waits for the other ranks; what one of them looks at stays as it is until the next time.
  void meet() const { barrier.arrive_and_wait(); }

  std::shared_ptr<Transport> transport;
  std::barrier<>& barrier;
  Stream stream{};
};

/// Runs `body` on each rank. Nothing may be registered at the end.
void run(int ranks, const NcclOptions& options, const std::function<void(Rank&)>& body) {
  const auto others = local_transports(ranks);
  std::barrier barrier(ranks);
  run_nccl_ranks(ranks, [&](int rank) {
    Rank self{nccl_transport(*others[static_cast<std::size_t>(rank)], soon(), options), barrier};
    body(self);
  });
  EXPECT_EQ(registrations(), 0U);
}

std::vector<float> gradient_of(std::size_t count, int rank, int step) {
  std::vector<float> gradient(count);
  for (std::size_t i = 0; i < count; ++i) {
    gradient[i] =
        static_cast<float>((i * 7919 + static_cast<std::size_t>(rank * 31 + step)) % 1009);
  }
  return gradient;
}

/// Reduces one bucket; returns the result.
std::vector<float> reduce(AllReducer& reducer, const Rank& self, std::size_t count, int step) {
  const DeviceArray<float> bucket(count);
  bucket.upload(gradient_of(count, self.rank(), step), self.stream);
  reducer.all_reduce(bucket.span(), count);
  return bucket.download(self.stream);
}

Options options_of(const char* schedule, const char* compressor = "topk:0.05") {
  return {.compressor = compressor, .schedule = schedule, .min_bytes = 0, .exempt_1d = false};
}

TEST(NcclRegistration, IsNotThereUnlessItIsAskedFor) {
  const std::uint64_t before = registered();
  run(2, {}, [&](Rank& self) {
    AllReducer reducer(self.transport, options_of("gather"), self.stream.exec());
    (void)reduce(reducer, self, 5000, 0);
    EXPECT_FALSE(self.transport->registrar());
  });
  EXPECT_EQ(registered(), before);
}

/// The results of all steps of rank 0; with `look` called between steps while all ranks wait.
std::vector<std::vector<float>> steps(const NcclOptions& options, const Options& how, int ranks,
                                      const std::function<void(int step)>& look) {
  std::vector<std::vector<float>> results;
  run(ranks, options, [&](Rank& self) {
    {
      AllReducer reducer(self.transport, how, self.stream.exec());
      // The later sizes grow the workspace, whose last blocks the next call registers, and the last
      // steps repeat what was.
      for (int step = 0; step < 8; ++step) {
        auto result = reduce(reducer, self,
                             step < 2 ? 5000U : 300'000U + static_cast<unsigned>(step % 2), step);
        reducer.synchronize();
        self.meet();
        if (self.rank() == 0) {
          results.push_back(std::move(result));
          look(step);
        }
        self.meet();
      }
    }
    self.meet();
    EXPECT_EQ(registrations(), 0U);  // and the transport lives on
    self.meet();
  });
  return results;
}

TEST(NcclRegistration, IsOfEachBlockOnceAndChangesNoBit) {
  for (const auto& [schedule, compressor] :
       {std::pair("gather", "topk:0.05"), std::pair("balanced", "topk:0.05"),
        std::pair("shared", "randomk:0.05"), std::pair("gather", "int8"),
        std::pair("gather", "threshold:900")}) {
    SCOPED_TRACE(std::string(schedule) + " of " + compressor);
    constexpr int kRanks = 3;
    const Options how = options_of(schedule, compressor);
    const auto expected = steps({}, how, kRanks, [](int) {});
    const std::uint64_t before = registered(), ended = deregistered();
    std::vector<std::uint64_t> counts;
    const auto results = steps(kRegistering, how, kRanks, [&](int) {
      counts.push_back(registered() - before);
      EXPECT_EQ(registrations(), counts.back());
    });
    EXPECT_EQ(results, expected);
    EXPECT_GE(counts[0], static_cast<std::uint64_t>(kRanks));
    EXPECT_GT(counts[2], counts[1]);
    EXPECT_EQ(counts[1], counts[0]);
    EXPECT_EQ(counts[7], counts[5]);
    EXPECT_EQ(deregistered() - ended, counts[7]);
  }
}

// NCCL wants all ranks' buffers of a call registered or none; where tensors lie is each rank's own.
TEST(NcclRegistration, DenseCallsTakeScratchWhereverTensorsLie) {
  for (const ElementType type : {ElementType::float32, ElementType::int32, ElementType::bf16}) {
    run(3, kRegistering, [&](Rank& self) {
      AllReducer reducer(self.transport, {.compressor = "none", .op = ReduceOp::sum},
                         self.stream.exec());
      const std::size_t bytes = 64 * bytes_of(type);
      const std::size_t gap = self.rank() == 1 ? bytes : 0;
      const DeviceZeros<std::byte> memory(2 * bytes + gap, self.stream);
      const Segment segments[] = {
          {.elements = Elements(memory.data(), 64, type), .id = 1},
          {.elements = Elements(memory.data() + bytes + gap, 64, type), .id = 2}};
      for (int step = 0; step < 2; ++step) reducer.all_reduce(segments);
      reducer.all_reduce(std::span(segments).first(1));
      reducer.synchronize();
      self.meet();
      EXPECT_GE(registrations(), 3U);
      self.meet();
    });
  }
}

/// One plain call plans; what it has taken after its last message is registered in the capture.
TEST(NcclRegistration, GoesOnInAGraph) {
  std::vector<std::vector<float>> results;
  for (const bool registers : {false, true}) {
    run(2, {.register_memory = registers}, [&](Rank& self) {
      AllReducer reducer(self.transport, options_of("gather"), self.stream.exec());
      const DeviceArray<float> bucket(5000);
      const auto call = [&] { reducer.all_reduce(bucket.span(), 7); };
      bucket.upload(gradient_of(5000, self.rank(), 0), self.stream);
      call();
      reducer.synchronize();
      const Graph graph(self.stream, call);
      for (int step = 1; step < 3; ++step) {
        bucket.upload(gradient_of(5000, self.rank(), step), self.stream);
        graph.launch(self.stream);
        reducer.synchronize();
        if (self.rank() == 0) results.push_back(bucket.download(self.stream));
      }
    });
  }
  ASSERT_EQ(results.size(), 4U);
  EXPECT_EQ(results[2], results[0]);
  EXPECT_EQ(results[3], results[1]);
}

TEST(NcclRegistration, OfAReduceScatter) {
  run(2, kRegistering, [](Rank& self) {
    AllReducer reducer(self.transport, options_of("auto"), self.stream.exec());
    const DeviceArray<float> input(5000), shard(2500);
    input.upload(gradient_of(5000, self.rank(), 0), self.stream);
    for (int step = 0; step < 2; ++step) reducer.reduce_scatter(input.span(), shard.span(), 7);
    reducer.synchronize();
    EXPECT_GT(registrations(), 0U);
    self.meet();
  });
}

// A rank's gradient goes to its node as it is, and so through scratch.
TEST(NcclRegistration, OfTwoLevels) {
  const auto others = local_transports(4);
  const std::uint64_t before = registered();
  std::string folder = testing::TempDir() + "winnow_levels_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::barrier barrier(4);
  run_nccl_ranks(4, [&](int rank) {
    const Rank self{
        nccl_transport({.path = folder + "/id", .rank = rank, .size = 4, .node = rank / 2}, soon(),
                       kRegistering),
        barrier};
    for (const char* const inner :
         {"two_level:gather", "two_level:balanced", "two_level:doubling"}) {
      AllReducer reducer(self.transport, options_of(inner), self.stream.exec());
      for (int step = 0; step < 3; ++step) (void)reduce(reducer, self, 5000, step);
      reducer.synchronize();
    }
  });
  EXPECT_GT(registered(), before);
  EXPECT_EQ(registrations(), 0U);
  EXPECT_EQ(::rmdir(folder.c_str()), 0);
}

// Those on the host are staged in memory that is not registered.
TEST(NcclRegistration, IsNotThereWhereSomeBucketsLieOnHosts) {
  const std::uint64_t before = registered();
  run(2, kRegistering, [](Rank& self) {
    std::vector<float> bucket = gradient_of(5000, self.rank(), 0);
    if (self.rank() == 0) {
      AllReducer(self.transport, options_of("doubling")).all_reduce(bucket, 7);
    } else {
      AllReducer reducer(self.transport, options_of("doubling"), self.stream.exec());
      const DeviceArray<float> there(bucket.size());
      there.upload(bucket, self.stream);
      reducer.all_reduce(there.span(), 7);
      reducer.synchronize();
    }
  });
  EXPECT_EQ(registered(), before);
}

TEST(NcclRegistration, EndsWithATransportThatFailed) {
  run(2, kRegistering, [](Rank& self) {
    AllReducer reducer(self.transport, options_of("gather"), self.stream.exec());
    (void)reduce(reducer, self, 5000, 0);
    reducer.synchronize();
    self.meet();
    self.transport->abort("enough");
    self.meet();
    EXPECT_EQ(registrations(), 0U);
    EXPECT_THROW((void)reduce(reducer, self, 300'000, 1), CommError);
  });
}

TEST(NcclRegistration, ThatFailsIsAnErrorOfItsRank) {
  fail_next(NcclJob::registration, 1);
  run(2, kRegistering, [](Rank& self) {
    Options options = options_of("gather");
    options.deadline = 2;
    const auto call = [&] {
      AllReducer reducer(self.transport, options, self.stream.exec());
      (void)reduce(reducer, self, 5000, 0);
      reducer.synchronize();
    };
    if (self.rank() == 1) {
      EXPECT_THAT(call, ThrowsMessage<CommError>(HasSubstr("ncclCommRegister")));
    } else {
      EXPECT_THROW(call(), CommError);
    }
  });
}

// As NCCL does where its variables of the environment say so.
TEST(NcclRegistration, MayBeOfNoUse) {
  let_register(false);
  run(2, kRegistering, [](Rank& self) {
    AllReducer reducer(self.transport, options_of("gather"), self.stream.exec());
    for (int step = 0; step < 2; ++step) (void)reduce(reducer, self, 5000, step);
    EXPECT_EQ(registrations(), 0U);
  });
  let_register(true);
}

TEST(NcclRegistration, OfADuplicateIsItsOwn) {
  run(2, kRegistering, [](Rank& self) {
    AllReducer reducer(self.transport, options_of("gather"), self.stream.exec());
    (void)reduce(reducer, self, 5000, 0);
    reducer.synchronize();
    self.meet();
    const std::size_t before = registrations();
    self.meet();
    {
      const std::shared_ptr<Transport> duplicate = self.transport->duplicate(soon());
      AllReducer other(duplicate, options_of("balanced"), self.stream.exec());
      (void)reduce(other, self, 5000, 0);
      other.synchronize();
      self.meet();
      EXPECT_GT(registrations(), before);
      self.meet();
    }
    self.meet();
    EXPECT_EQ(registrations(), before);
    self.meet();
    (void)reduce(reducer, self, 5000, 1);
  });
}

TEST(NcclRegistration, IsWithABorrowedCommunicatorWhileItsReducerLives) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const std::uint64_t before = registered();
  run_nccl_ranks(2, [&](int rank) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
    {
      std::barrier alone(1);
      const Rank self{nccl_transport(comm, 0, kRegistering), alone};
      AllReducer reducer(self.transport, options_of("gather"), self.stream.exec());
      (void)reduce(reducer, self, 5000, 0);
    }
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);  // the model: with nothing registered
  });
  EXPECT_GT(registered(), before);
}

// The transport, and its communicator, then end with the AllReducer.
TEST(NcclRegistration, EndsBeforeATransportThatNobodyElseOwns) {
  run(2, kRegistering, [](Rank& self) {
    AllReducer reducer(self.transport, options_of("gather"), self.stream.exec());
    (void)reduce(reducer, self, 5000, 0);
    self.transport.reset();
  });
}

TEST(NcclRegistration, EndsWhenMessagesHaveEnded) {
  run(2, kRegistering, [](Rank& self) {
    const DeviceArray<std::byte> memory(1000);
    auto registration = self.transport->registrar()(memory.span());
    const auto start = [&](std::span<std::byte> bytes) {
      if (self.rank() == 0) {
        self.transport->send(bytes, 1);
      } else {
        self.transport->recv(bytes, 0, nullptr);
      }
      return self.transport->start(self.stream.exec());
    };
    (void)start(memory.span());
    self.meet();
    if (self.rank() == 0) {
      registration.reset();  // the message is under way, or the peer has it
      EXPECT_EQ(registrations(), 1U);
    }
    self.meet();
    registration.reset();
    // A message that nobody fetches.
    if (self.rank() == 0) {
      registration = self.transport->registrar()(memory.span());
      (void)start(memory.span());
      registration.reset();
      EXPECT_THAT([&] { self.transport->wait(start(memory.span()), soon()); },
                  ThrowsMessage<CommError>(HasSubstr("messages did not end")));
    }
    self.meet();
  });
}

/// What is added is registered by the next group, and not while NCCL issues one.
TEST(NcclRegistration, WaitsForTheNextGroup) {
  run(2, kRegistering, [](Rank& self) {
    const DeviceArray<std::byte> sent(1000), received(1000);
    const auto exchange = [&] {
      self.transport->send(sent.span(), 1 - self.rank());
      self.transport->recv(received.span(), 1 - self.rank(), nullptr);
      return self.transport->start(self.stream.exec());
    };
    const MemoryRegistrar registrar = self.transport->registrar();
    const Ticket first = exchange();  // NCCL issues it, in the model for some polls
    {
      const auto never = registrar(sent.span());
      const auto one = registrar(sent.span()), other = registrar(received.span());
      self.meet();
      EXPECT_EQ(registrations(), 0U);
      self.meet();
      self.transport->wait(first, soon());
      self.transport->wait(exchange(), soon());
      self.meet();
      EXPECT_EQ(registrations(), 6U);
      self.meet();
    }
    const auto forgotten = registrar(sent.span());
  });
}

TEST(NcclRegistration, OfHostMemoryIsRefused) {
  run(1, kRegistering, [](Rank& self) {
    std::vector<std::byte> memory(100);
    EXPECT_THROW((void)self.transport->registrar()(memory), UsageError);
  });
}

TEST(NcclRegistration, NeedsNccl219OnEveryRank) {
  set_nccl_version(NCCL_VERSION(2, 18, 5));
  const auto refused = ThrowsMessage<UsageError>(HasSubstr("for NcclOptions::register_memory"));
  const auto others = local_transports(2);
  run_nccl_ranks(2, [&](int rank) {
    Transport& other = *others[static_cast<std::size_t>(rank)];
    EXPECT_THAT([&] { (void)nccl_transport(other, soon(), kRegistering); }, refused);
    EXPECT_EQ(nccl_transport(other, soon())->size(), 2);
  });
  EXPECT_THAT(
      [&] {
        (void)nccl_transport({.path = "/none/id", .rank = 1, .size = 2}, soon(), kRegistering);
      },
      refused);
  set_nccl_version(0);
}

TEST(NcclRegistration, IsEqualOnAllRanks) {
  const auto others = local_transports(2);
  run_nccl_ranks(2, [&](int rank) {
    Transport& other = *others[static_cast<std::size_t>(rank)];
    EXPECT_THAT([&] { (void)nccl_transport(other, soon(), {.register_memory = rank == 1}); },
                ThrowsMessage<UsageError>(HasSubstr("register_memory=0, rank 1 has min_ctas=0 "
                                                    "max_ctas=0 cga_cluster_size=0 "
                                                    "register_memory=1")));
  });
}

}  // namespace
}  // namespace winnow::tests
