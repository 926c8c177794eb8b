// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The contract of a transport, over NCCL on device memory: for processes that share one GPU, and
// for threads over a model of NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <winnow/conformance/transport.hpp>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>

#include "kernels/arithmetic/reduce.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/reduce.hpp"
#include "lab/reference/place.hpp"
#include "tests/gpu/device_memory.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"

namespace winnow::tests {
namespace {

using conformance::Bytes;
using conformance::pattern;
using testing::HasSubstr;
using testing::ThrowsMessage;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

/// One rank of a job, or of a subset.
struct Rank {
  explicit Rank(std::unique_ptr<Transport> its) : transport(std::move(its)) {}

  DeviceArray<std::byte> upload(const Bytes& bytes) const {
    DeviceArray<std::byte> device(bytes.size());
    device.upload(bytes, stream);
    return device;
  }

  Stream stream;
  std::unique_ptr<Transport> transport;
};

/// Runs `body` on every rank with the path of a file to meet at.
void run_at_a_file(int ranks, const std::function<void(int, const std::string&)>& body) {
  std::string folder = testing::TempDir() + "winnow_nccl_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  run_nccl_ranks(ranks, [&](int rank) { body(rank, folder + "/id"); });
  EXPECT_NE(::access((folder + "/id").c_str(), F_OK), 0) << "the file stays behind";
  EXPECT_EQ(::rmdir(folder.c_str()), 0);
}

std::unique_ptr<Transport> join(int rank, int ranks, const std::string& path) {
  return nccl_transport({.path = path, .job = 42, .rank = rank, .size = ranks, .node = 7}, soon());
}

void run_transports(int ranks, const conformance::RankBody& body) {
  if (const std::string reason = why_no_nccl_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  run_at_a_file(ranks, [&](int rank, const std::string& path) { body(join(rank, ranks, path)); });
}

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_nccl_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  }
  static void run(std::initializer_list<int> counts, const std::function<void(Rank&)>& body) {
    for (const int ranks : counts) {
      run_at_a_file(ranks, [&](int rank, const std::string& path) {
        Rank self(join(rank, ranks, path));
        body(self);
      });
    }
  }
};

void exchange_all(Rank& self, const std::vector<std::size_t>& sizes) {
  DeviceMemory memory;
  conformance::exchange_all({*self.transport, memory}, sizes);
}

// Its documentation takes these back: sizes do not travel, an abort reaches a peer only if NCCL
// sees the connection break, and what waits on a stream holds up what comes after it there.
const conformance::World kWorld{
    .rank_counts =
        [] {
          return std::vector{2, 4};
        },
    .run = run_transports,
    .memory = [] { return std::make_unique<DeviceMemory>(); },
    .names_ranks = true,
    .left_out = {"RefusesMessagesThatDoNotFitTheirBuffer", "AbortWakesPeersAndSaysWhy",
                 "AbortTakesLongReasons", "AbortOfASubsetReachesItsRanks",
                 "ADuplicateHasAnOrderOfItsOwn"}};
const bool kRegistered =
    conformance::register_transport("NcclTransport", kWorld) &&
    conformance::register_checks("NcclTransport", conformance::kDuplicates, kWorld);

TEST_F(Nccl, SaysWhatItIs) {
  run({2}, [](Rank& self) {
    EXPECT_FALSE(self.transport->sizes_travel());
    EXPECT_EQ(self.transport->node(), 7);
  });
}

TEST_F(Nccl, RefusesWhatItCannotMove) {
  run({2}, [](Rank& self) {
    Transport& transport = *self.transport;
    const int peer = (transport.rank() + 1) % transport.size();
    Bytes host(64);
    std::vector<float> elements(8);
    const auto refuses_host = ThrowsMessage<UsageError>(HasSubstr("host memory"));
    EXPECT_THAT([&] { transport.send(host, peer); }, refuses_host);
    EXPECT_THAT([&] { transport.recv(host, peer, nullptr); }, refuses_host);
    EXPECT_THAT([&] { transport.all_reduce(self.stream.exec(), elements, ReduceOp::sum, soon()); },
                refuses_host);
    EXPECT_THAT([&] { (void)transport.start({}); },
                ThrowsMessage<UsageError>(HasSubstr("exec.stream")));
    EXPECT_THAT([&] { (void)transport.start({.place = Place::cuda}); },
                ThrowsMessage<UsageError>(HasSubstr("exec.stream")));
    EXPECT_THROW(transport.send({}, transport.rank()), UsageError);
    EXPECT_THROW(transport.wait(Ticket{1}, soon()), UsageError);
    const DeviceArray<float> ones(8);
    ones.upload(std::vector<float>(8, 1), self.stream);
    EXPECT_THAT([&] { transport.all_reduce({}, ones.span(), ReduceOp::sum, soon()); },
                ThrowsMessage<UsageError>(HasSubstr("exec.stream")));
    exchange_all(self, {10});  // and nothing of it was enqueued
    EXPECT_EQ(ones.download(self.stream), std::vector<float>(8, 1));
  });
}

TEST_F(Nccl, AbortEndsWhatIsUnderWay) {
  run({2}, [](Rank& self) {
    Transport& transport = *self.transport;
    const DeviceArray<std::byte> buffer(100);
    transport.recv(buffer.span(), (transport.rank() + 1) % transport.size(), nullptr);
    const Ticket ticket = transport.start(self.stream.exec());
    transport.abort("enough");
    transport.abort("more than enough");
    EXPECT_THAT([&] { transport.wait(ticket, soon()); },
                ThrowsMessage<CommError>(HasSubstr("this rank aborted: enough")));
    self.stream.synchronize();  // no kernel waits for ever
  });
}

template <class T>
void expect_reduced(Rank& self, ReduceOp op, const std::function<T(T, T)>& combine) {
  Transport& transport = *self.transport;
  const auto value = [](int rank, std::size_t i) {
    return static_cast<T>(1 + (i + static_cast<std::size_t>(rank) * 3) % 5);
  };
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1001}}) {
    std::vector<T> mine(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      mine[i] = value(transport.rank(), i);
      expected[i] = value(0, i);
      for (int rank = 1; rank < transport.size(); ++rank) {
        expected[i] = combine(expected[i], value(rank, i));
      }
    }
    const DeviceArray<T> elements(count);
    elements.upload(mine, self.stream);
    transport.all_reduce(self.stream.exec(), elements.span(), op, soon());
    EXPECT_EQ(elements.download(self.stream), expected) << count;
  }
}

// With whole numbers, so that any order of summation has the same result.
template <class T>
void expect_all_reduced(Rank& self) {
  expect_reduced<T>(self, ReduceOp::sum, [](T a, T b) { return static_cast<T>(a + b); });
  expect_reduced<T>(self, ReduceOp::product, [](T a, T b) { return static_cast<T>(a * b); });
  expect_reduced<T>(self, ReduceOp::minimum, [](T a, T b) { return std::min(a, b); });
  expect_reduced<T>(self, ReduceOp::maximum, [](T a, T b) { return std::max(a, b); });
}

TEST_F(Nccl, AllReduceOfEveryTypeAndOperation) {
  run({2, 4}, [](Rank& self) {
    expect_all_reduced<float>(self);
    expect_all_reduced<double>(self);
    expect_all_reduced<std::int8_t>(self);
    expect_all_reduced<std::uint8_t>(self);
    expect_all_reduced<std::int32_t>(self);
    expect_all_reduced<std::uint32_t>(self);
    expect_all_reduced<std::int64_t>(self);
    expect_all_reduced<std::uint64_t>(self);
    const DeviceArray<float> elements(4);
    EXPECT_THROW(
        self.transport->all_reduce(self.stream.exec(), elements.span(), ReduceOp::average, soon()),
        UsageError);
  });
}

/// Numbers of all kinds, and zeros and NaNs that only some ranks have.
template <std::floating_point T>
std::vector<T> rare_numbers(int rank, std::size_t count) {
  using Limits = std::numeric_limits<T>;
  const T kinds[] = {T{0},
                     -T{0},
                     Limits::quiet_NaN(),
                     -Limits::quiet_NaN(),
                     Limits::infinity(),
                     -Limits::infinity(),
                     Limits::denorm_min(),
                     -Limits::denorm_min(),
                     Limits::max(),
                     Limits::lowest(),
                     T{1},
                     T{-2}};
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  std::vector<T> numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Rank 0 goes through all kinds while rank 1 stays with one, so that each kind meets each
    // other.
    const std::size_t at = rank == 0 ? i : rank == 1 ? i / std::size(kinds) : random();
    numbers[i] = kinds[at % std::size(kinds)];
  }
  return numbers;
}

/// Compares `count` elements, aligned only to their size, with the bits of kernels::reduce.
template <std::floating_point T>
void expect_rare_numbers_reduced(Rank& self, ReduceOp op, std::size_t count) {
  Transport& transport = *self.transport;
  std::vector<T> expected = rare_numbers<T>(0, count);
  for (int rank = 1; rank < transport.size(); ++rank) {
    kernels::reduce({.place = lab::kReference}, op, expected, rare_numbers<T>(rank, count));
  }
  std::vector<T> mine = rare_numbers<T>(transport.rank(), count);
  mine.insert(mine.begin(), T{7});
  mine.push_back(T{7});
  const DeviceArray<T> elements(mine.size());
  elements.upload(mine, self.stream);
  transport.all_reduce(self.stream.exec(), elements.span().subspan(1, count), op, soon());
  const std::vector<T> got = elements.download(self.stream);
  EXPECT_EQ(got.front(), T{7});
  EXPECT_EQ(got.back(), T{7});
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(std::bit_cast<kernels::BitsOf<T>>(got[i + 1]),
              std::bit_cast<kernels::BitsOf<T>>(expected[i]))
        << "element " << i << " is " << got[i + 1] << ", not " << expected[i];
  }
}

// NCCL's own ignore NaN and treat both zeros alike.
TEST_F(Nccl, MinimumAndMaximumKnowZerosAndPassNaN) {
  run({2, 3}, [](Rank& self) {
    for (const ReduceOp op : {ReduceOp::minimum, ReduceOp::maximum}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{1001}}) {
        expect_rare_numbers_reduced<float>(self, op, count);
        expect_rare_numbers_reduced<double>(self, op, count);
      }
    }
  });
}

// After one more wait, as transport.hpp says, another stream may read the result.
TEST_F(Nccl, AMaximumIsThereAfterOneMoreStart) {
  run({2}, [](Rank& self) {
    Transport& transport = *self.transport;
    const Stream other;
    const DeviceArray<float> elements(100'000);
    for (int call = 0; call < 5; ++call) {
      elements.upload(std::vector<float>(100'000, static_cast<float>(2 - transport.rank())),
                      self.stream);
      transport.all_reduce(self.stream.exec(), elements.span(), ReduceOp::maximum, soon());
      transport.wait(transport.start(self.stream.exec()), soon());
      EXPECT_TRUE(elements.download(other) == std::vector<float>(100'000, 2));
    }
  });
}

TEST_F(Nccl, AGraphReplaysAMaximum) {
  run({2}, [](Rank& self) {
    Transport& transport = *self.transport;
    const auto mine = [&](float x) { return transport.rank() == 0 ? x : -x; };
    const DeviceArray<float> elements(1000);
    const auto call = [&] {
      transport.all_reduce(self.stream.exec(), elements.span(), ReduceOp::maximum, soon());
    };
    elements.upload(std::vector<float>(1000, mine(1)), self.stream);
    call();
    EXPECT_EQ(elements.download(self.stream), std::vector<float>(1000, 1));
    transport.wait(transport.start(self.stream.exec()), soon());
    const Graph graph(self.stream, call);
    for (const float x : {-7.0F, 5.0F}) {
      elements.upload(std::vector<float>(1000, mine(x)), self.stream);
      graph.launch(self.stream);
      EXPECT_EQ(elements.download(self.stream), std::vector<float>(1000, std::abs(x)));
    }
  });
}

// Groups that were started but not issued yet come first, even before work beside NCCL's own
// kernels.
TEST_F(Nccl, AMaximumIsThatOfWhatCameBefore) {
  run({2}, [](Rank& self) {
    Transport& transport = *self.transport;
    const Exec exec = self.stream.exec();
    const int peer = 1 - transport.rank();
    const DeviceArray<float> sent(1000), received(1000);
    sent.upload(std::vector<float>(1000, transport.rank() == 0 ? -3.0F : -5.0F), self.stream);
    received.upload(std::vector<float>(1000, 9), self.stream);
    for (int message = 0; message < 2; ++message) {
      transport.send(std::as_bytes(sent.span()), peer);
      transport.recv(std::as_writable_bytes(received.span()), peer, nullptr);
      (void)transport.start(exec);
    }
    transport.all_reduce(exec, received.span(), ReduceOp::maximum, soon());
    EXPECT_EQ(received.download(self.stream), std::vector<float>(1000, -3));
  });
}

/// Nobody waits for the stream in between.
TEST_F(Nccl, KernelsAndMessagesKeepTheOrderOfTheirStream) {
  run({2, 4}, [](Rank& self) {
    Transport& transport = *self.transport;
    const Exec exec = self.stream.exec();
    const int ranks = transport.size(), peer = transport.rank() ^ 1;
    const DeviceArray<float> sum(1000), received(1000);
    const std::vector<float> ones(1000, 1);
    kernels::cuda::enqueue_copy(sum.span(), ones, self.stream);
    for (int step = 0; step < 10; ++step) {
      kernels::scale(exec, sum.span(), 2);
      transport.all_reduce(exec, sum.span(), ReduceOp::sum, soon());
      kernels::scale(exec, sum.span(), 1 / static_cast<float>(ranks));
      transport.send(std::as_bytes(sum.span()), peer);
      transport.recv(std::as_writable_bytes(received.span()), peer, nullptr);
      transport.wait(transport.start(exec), soon());
      kernels::cuda::enqueue_copy(sum.span(), received.span(), self.stream);
    }
    EXPECT_TRUE(sum.download(self.stream) == std::vector<float>(1000, 1024));
  });
}

TEST_F(Nccl, SubsetsAreGroupsOfTheirOwn) {
  run({2, 4}, [](Rank& self) {
    Transport& transport = *self.transport;
    const int rank = transport.rank();
    std::vector<int> members;  // even or odd ones, in reverse
    for (int other = transport.size() - 1; other >= 0; --other) {
      if (other % 2 == rank % 2) members.push_back(other);
    }
    Rank part(transport.subset(members));
    EXPECT_EQ(part.transport->size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[static_cast<std::size_t>(part.transport->rank())], rank);
    const DeviceArray<std::int32_t> sum(1);
    sum.upload(std::vector<std::int32_t>{rank}, self.stream);
    part.transport->all_reduce(self.stream.exec(), sum.span(), ReduceOp::sum, soon());
    EXPECT_EQ(sum.download(self.stream)[0], std::accumulate(members.begin(), members.end(), 0));
    exchange_all(part, {10, 1000});
    exchange_all(self, {10, 1000});
  });
}

// NCCL itself does not wait.
TEST_F(Nccl, ASubsetWaitsForWhatIsUnderWay) {
  run({2}, [](Rank& self) {
    Transport& transport = *self.transport;
    const int peer = 1 - transport.rank();
    const auto sent = self.upload(pattern(transport.rank(), peer, 0, 100));
    const DeviceArray<std::byte> received(100);
    transport.recv(received.span(), peer, nullptr);
    if (transport.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    transport.send(sent.span(), peer);
    (void)transport.start(self.stream.exec());
    EXPECT_EQ(transport.subset(std::vector{0, 1})->size(), 2);
    EXPECT_TRUE(received.download(self.stream) == pattern(peer, transport.rank(), 0, 100));
  });
}

TEST_F(Nccl, AGroupThatIsNoneKeepsNobodyWaiting) {
  run({2, 4}, [](Rank& self) {
    Transport& transport = *self.transport;
    std::vector<int> all(static_cast<std::size_t>(transport.size()));
    std::iota(all.begin(), all.end(), 0);
    if (transport.rank() == 1) {
      EXPECT_THROW((void)transport.subset(std::vector{1, 1}), UsageError);
    } else {
      EXPECT_THAT([&] { (void)transport.subset(all); },
                  ThrowsMessage<CommError>(HasSubstr("ranks differ")));
    }
    exchange_all(self, {10, 1000});
    EXPECT_EQ(transport.subset(all)->size(), transport.size());
  });
}

/// An id that rank 0 of two makes for both.
ncclUniqueId share_id(Rank& self) {
  ncclUniqueId id{};
  if (self.transport->rank() == 0) {
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  }
  const auto id_bytes = std::as_writable_bytes(std::span(&id, 1));
  const auto mine = self.upload({id_bytes.begin(), id_bytes.end()});
  const DeviceArray<std::byte> ids(2 * sizeof id);
  self.transport->all_gather(self.stream.exec(), mine.span(), ids.span(), soon());
  std::memcpy(&id, ids.download(self.stream).data(), sizeof id);
  return id;
}

// The caller's communicator is left as it was if nothing is under way: messages that are done
// without a wait, or were never started.
TEST_F(Nccl, WhatIsDoneEndsNoCommunicatorOfTheCaller) {
  run({2}, [](Rank& self) {
    const int rank = self.transport->rank(), peer = 1 - rank;
    const ncclUniqueId id = share_id(self);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
    {
      const auto borrowed = nccl_transport(comm, 3);
      const auto sent = self.upload(pattern(rank, peer, 0, 100));
      const DeviceArray<std::byte> received(100);
      borrowed->send(sent.span(), peer);
      borrowed->recv(received.span(), peer, nullptr);
      (void)borrowed->start(self.stream.exec());
      EXPECT_TRUE(received.download(self.stream) == pattern(peer, rank, 0, 100));
      borrowed->send(sent.span(), peer);
    }
    int count = 0;
    ASSERT_EQ(ncclCommCount(comm, &count), ncclSuccess);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
}

/// The caller's communicator connects while a transport is made of it.
TEST_F(Nccl, WaitsForACommunicatorThatConnects) {
  run({2}, [](Rank& self) {
    const int rank = self.transport->rank();
    const ncclUniqueId id = share_id(self);
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
    EXPECT_EQ(nccl_transport(comm, 0, {}, soon())->size(), 2);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  });
}

TEST_F(Nccl, WaitsNoLongerThanTheDeadlineForACommunicatorThatConnects) {
  run_nccl_ranks(1, [](int) {
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
    EXPECT_THAT(
        [&] { (void)nccl_transport(comm, 0, {}, Deadline::after(std::chrono::milliseconds(20))); },
        ThrowsMessage<CommError>(HasSubstr("the deadline passed while NCCL connected ranks")));
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  });
}

// The caller's communicator, which stays; and one of another transport's ranks.
TEST_F(Nccl, TakesWhatThereIs) {
  run_nccl_ranks(1, [](int) {
    const Stream stream;
    const auto other = local_transports(1);
    const auto transport = nccl_transport(*other[0], soon());
    EXPECT_EQ(transport->size(), 1);
    const DeviceArray<float> elements(3);
    elements.upload(std::vector<float>{1, 2, 3}, stream);
    transport->all_reduce(stream.exec(), elements.span(), ReduceOp::sum, soon());
    EXPECT_EQ(elements.download(stream), (std::vector<float>{1, 2, 3}));

    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
    {
      const auto borrowed = nccl_transport(comm, 3);
      EXPECT_EQ(borrowed->node(), 3);
      borrowed->all_reduce(stream.exec(), elements.span(), ReduceOp::sum, soon());
      stream.synchronize();
    }
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
}

}  // namespace
}  // namespace winnow::tests
