// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Promises of simulated ranks beyond those of all transports: times with a closed form, equal in
// every run, and an error for whatever would hang or get lost.
#include "lab/simulated/simulated.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

namespace winnow::comm {
namespace {

using Bytes = std::vector<std::byte>;
using Rank = std::shared_ptr<SimulatedTransport>;
using Times = std::vector<double>;

// Small whole numbers, so that times are exact: 3 s and 1 B/s per node between nodes, 1 s and 4 B/s
// per rank within.
SimulatedWorld world_of(std::string_view topology, std::string_view links = "") {
  const std::string all = "inter=3s,1B/s intra=1s,4B/s";
  return {.topology = Topology::parse(topology),
          .links = LinkModel::parse(links.empty() ? std::string_view(all) : links),
          .trace = true};
}

void wait_for_all(Transport& transport) {
  transport.wait(transport.start({}), Deadline::never());
}

/// Sends one message of `message_bytes` from each first to its second.
SimulatedResult send_between(const SimulatedWorld& world, std::size_t message_bytes,
                             const std::vector<std::pair<int, int>>& messages) {
  return world.run([&](const Rank& rank) {
    const Bytes message(message_bytes);
    std::vector<Bytes> buffers(messages.size(), Bytes(message_bytes));
    for (std::size_t n = 0; n < messages.size(); ++n) {
      if (messages[n].first == rank->rank()) rank->send(message, messages[n].second);
      if (messages[n].second == rank->rank()) rank->recv(buffers[n], messages[n].first, nullptr);
    }
    wait_for_all(*rank);
  });
}

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(SimulatedTime, OfAMessageIsLatencyAndTransfer) {
  const SimulatedResult between = send_between(world_of("2x1"), 100, {{0, 1}});
  EXPECT_EQ(between.seconds, (Times{100, 103}));  // the sender is done when the last byte has left
  EXPECT_EQ(between.transfers, (std::vector{SimulatedTransfer{0, 1, 100, 0, 103}}));
  EXPECT_EQ(send_between(world_of("1x2"), 100, {{0, 1}}).seconds, (Times{25, 26}));
  EXPECT_EQ(send_between(world_of("2x1"), 0, {{0, 1}}).seconds, (Times{0, 3}));
}

TEST(SimulatedTime, RanksOfANodeShareItsUplink) {
  const SimulatedResult result = send_between(world_of("2x2"), 100, {{0, 2}, {1, 3}});
  EXPECT_EQ(result.seconds, (Times{100, 200, 103, 203}));
  EXPECT_EQ(result.uplink_bytes, (std::vector<std::uint64_t>{200, 0}));
  EXPECT_EQ(result.bytes_sent, (std::vector<std::uint64_t>{100, 100, 0, 0}));
  EXPECT_EQ(result.messages_sent, (std::vector<std::uint64_t>{1, 1, 0, 0}));
  const SimulatedWorld own_cards = world_of("2x2", "inter=3s,1B/s,per-rank");
  EXPECT_EQ(send_between(own_cards, 100, {{0, 2}, {1, 3}}).seconds, (Times{100, 100, 103, 103}));
}

TEST(SimulatedTime, RanksThatShareAnUplinkTakeTurns) {
  const SimulatedResult result =
      send_between(world_of("2x2"), 100, {{0, 2}, {0, 3}, {0, 2}, {1, 3}, {1, 2}});
  std::vector<int> order;
  for (const SimulatedTransfer& transfer : result.transfers) order.push_back(transfer.from);
  EXPECT_EQ(order, (std::vector{0, 1, 0, 1, 0}));
}

TEST(SimulatedTime, IncastIsSerial) {
  EXPECT_EQ(send_between(world_of("4x1"), 100, {{1, 0}, {2, 0}, {3, 0}}).seconds,
            (Times{303, 100, 100, 100}));
  // Messages to different ranks of one node wait for each other, too.
  EXPECT_EQ(send_between(world_of("2,1,1"), 100, {{2, 0}, {3, 1}}).seconds,
            (Times{103, 203, 100, 100}));
  // Within a node each rank has its own port.
  EXPECT_EQ(send_between(world_of("1x4"), 100, {{1, 0}, {2, 0}, {3, 2}}).seconds,
            (Times{51, 25, 26, 25}));
  const SimulatedWorld one_memory = world_of("1x4", "intra=1s,4B/s,per-node");
  EXPECT_EQ(send_between(one_memory, 100, {{0, 1}, {2, 3}}).seconds, (Times{25, 26, 50, 51}));
}

TEST(SimulatedTime, BothDirectionsAndBothLevelsAreApart) {
  EXPECT_EQ(send_between(world_of("2x1"), 100, {{0, 1}, {1, 0}}).seconds, (Times{103, 103}));
  EXPECT_EQ(send_between(world_of("2,1"), 100, {{0, 2}, {0, 1}, {1, 0}}).seconds,
            (Times{100, 26, 103}));
}

TEST(SimulatedTime, AMessageMayArriveBeforeItIsExpected) {
  const SimulatedResult result = world_of("2x1").run([](const Rank& rank) {
    Bytes message(100);
    if (rank->rank() == 0) {
      rank->send(message, 1);
      wait_for_all(*rank);
      EXPECT_EQ(rank->clock(), 500);
    } else {
      rank->advance(500);
      rank->recv(message, 0, nullptr);
      wait_for_all(*rank);
    }
  });
  EXPECT_EQ(result.seconds, (Times{500, 500}));
}

TEST(SimulatedTime, PortsServeWhatIsReadyFirst) {
  const SimulatedResult result = world_of("3,1").run([](const Rank& rank) {
    const Bytes message(10);
    std::vector<Bytes> buffers(3, Bytes(10));
    // Ranks 0, 1 and 2 compute for 20, 5 and 12 seconds.
    constexpr double kSeconds[] = {20, 5, 12};
    if (rank->rank() < 3) {
      rank->advance(kSeconds[rank->rank()] / 2);
      rank->advance(kSeconds[rank->rank()] / 2);
      EXPECT_EQ(rank->clock(), kSeconds[rank->rank()]);
      rank->send(message, 3);
    } else {
      for (int peer = 0; peer < 3; ++peer)
        rank->recv(buffers[static_cast<std::size_t>(peer)], peer, nullptr);
    }
    wait_for_all(*rank);
  });
  EXPECT_EQ(result.transfers,
            (std::vector{SimulatedTransfer{1, 3, 10, 5, 18}, SimulatedTransfer{2, 3, 10, 15, 28},
                         SimulatedTransfer{0, 3, 10, 25, 38}}));
}

/// An all_reduce of so many elements a rank, over links of 3 s and 1 byte a second.
SimulatedResult reduced(int ranks, std::uint64_t count) {
  const SimulatedWorld world{.topology = Topology::uniform(ranks, 1),
                             .links = LinkModel::parse("inter=3s,1B/s")};
  return world.run([&](const Rank& rank) {
    Workspace workspace;
    std::vector<float> elements(count, 1.0F);
    rank->all_reduce({.workspace = &workspace}, elements, ReduceOp::sum, Deadline::never());
    EXPECT_EQ(elements.front(), static_cast<float>(ranks));
    EXPECT_EQ(elements.back(), static_cast<float>(ranks));
  });
}

TEST(SimulatedTime, OfTheRingIsItsFormula) {
  for (const int ranks : {2, 3, 8, 20}) {
    constexpr std::uint64_t kChunk = 2000;  // elements
    const SimulatedResult result = reduced(ranks, kChunk * static_cast<std::uint64_t>(ranks));
    const double steps = 2.0 * (ranks - 1);
    for (const double seconds : result.seconds)
      EXPECT_EQ(seconds, steps * (3 + 4 * static_cast<double>(kChunk)));
    for (const std::uint64_t messages : result.messages_sent) EXPECT_EQ(messages, steps);
  }
}

TEST(SimulatedTime, FewElementsAreReducedInOneStep) {
  for (const int ranks : {2, 3, 8, 20}) {
    constexpr std::uint64_t kCount = 7;
    const SimulatedResult result = reduced(ranks, kCount);
    const double others = ranks - 1;
    for (const double seconds : result.seconds)
      EXPECT_EQ(seconds, 3 + others * 4 * static_cast<double>(kCount));
    for (const std::uint64_t messages : result.messages_sent) EXPECT_EQ(messages, others);
  }
}

/// Every rank sends `message_bytes` to every other one; rank r begins with r + 1.
void all_to_all(Transport& transport, std::uint64_t message_bytes) {
  // Address space that must not be touched. NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* nowhere = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  const int size = transport.size(), rank = transport.rank();
  for (int distance = 1; distance < size; ++distance) {
    transport.send({nowhere, message_bytes}, (rank + distance) % size);
    transport.recv({nowhere, message_bytes}, (rank + size - distance) % size, nullptr);
  }
  wait_for_all(transport);
}

TEST(SimulatedTime, OfAnAllToAllAmongManyIsItsFormula) {
  constexpr int kRanks = 512;
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 30;
  const SimulatedWorld world{.topology = Topology::uniform(kRanks, 1),
                             .links = LinkModel::parse("inter=4s,1MB/s"),
                             .payload = SimulatedWorld::Payload::sizes};
  const SimulatedResult result = world.run([](const Rank& rank) { all_to_all(*rank, kBytes); });
  // Each rank has its next message ready when the one before has left: P - 1 in a row.
  const double expected = 4 + (kRanks - 1) * static_cast<double>(kBytes) / 1e6;
  for (const double seconds : result.seconds) EXPECT_NEAR(seconds, expected, 1e-9 * expected);
  for (const std::uint64_t messages : result.messages_sent) EXPECT_EQ(messages, kRanks - 1U);
}

TEST(Simulated, LengthsHave64Bits) {
  constexpr std::uint64_t kBytes = (std::uint64_t{1} << 33) + 5;
  SimulatedWorld world = world_of("2");
  world.payload = SimulatedWorld::Payload::sizes;
  const SimulatedResult result = world.run([](const Rank& rank) {
    std::byte nowhere[1]{};
    std::uint64_t message_bytes = 0;
    if (rank->rank() == 0) rank->send({nowhere, kBytes}, 1);
    if (rank->rank() == 1) rank->recv({nowhere, kBytes + 1}, 0, &message_bytes);
    wait_for_all(*rank);
    EXPECT_EQ(message_bytes, rank->rank() == 1 ? kBytes : 0);
    EXPECT_EQ(rank->bytes_sent(), rank->rank() == 0 ? kBytes : 0);
  });
  EXPECT_EQ(result.bytes_sent[0], kBytes);
}

/// A rank's state at the end of a random program, and the time.
struct Outcome {
  SimulatedResult result;
  std::vector<Bytes> received;
};

Outcome run_at_random(unsigned seed, SimulatedWorld::Payload payload) {
  SimulatedWorld world = world_of("3,1,2", "inter=30us,7MB/s intra=1us,1GB/s");
  world.payload = payload;
  Outcome outcome;
  outcome.received.resize(6);
  outcome.result = world.run([&](const Rank& rank) {
    const auto self = static_cast<std::size_t>(rank->rank());
    std::mt19937 random(seed), own(seed + 1 + static_cast<unsigned>(self));
    for (int round = 0; round < 20; ++round) {
      rank->advance(static_cast<double>(own() % 1000) * 1e-6);
      std::vector<Bytes> messages, buffers(36);
      messages.reserve(36);
      for (int from = 0; from < 6; ++from) {
        for (int to = 0; to < 6; ++to) {
          const std::size_t size = random() % 5000;
          if (from == to) continue;
          if (from == rank->rank())
            rank->send(messages.emplace_back(size, static_cast<std::byte>(own())), to);
          if (to != rank->rank()) continue;
          Bytes& buffer = buffers[static_cast<std::size_t>(from)];
          buffer.resize(size);
          rank->recv(buffer, from, nullptr);
        }
        if (own() % 2 == 0) (void)rank->start({});
      }
      wait_for_all(*rank);
      for (const Bytes& buffer : buffers)
        outcome.received[self].insert(outcome.received[self].end(), buffer.begin(), buffer.end());
    }
  });
  return outcome;
}

TEST(Simulated, TwoRunsAreTheSame) {
  const Outcome first = run_at_random(5, SimulatedWorld::Payload::bytes);
  const Outcome second = run_at_random(5, SimulatedWorld::Payload::bytes);
  const Outcome sizes = run_at_random(5, SimulatedWorld::Payload::sizes);
  const Outcome other = run_at_random(6, SimulatedWorld::Payload::bytes);
  EXPECT_EQ(first.result.transfers.size(), 600U);
  EXPECT_EQ(first.result.transfers, second.result.transfers);
  EXPECT_EQ(first.result.seconds, second.result.seconds);
  EXPECT_EQ(first.received, second.received);
  EXPECT_EQ(first.result.transfers, sizes.result.transfers);
  EXPECT_NE(first.received, sizes.received);  // nothing was written
  EXPECT_NE(first.result.transfers, other.result.transfers);
}

TEST(Simulated, VirtualTimeOnlyGoesForwards) {
  const SimulatedResult result = run_at_random(9, SimulatedWorld::Payload::bytes).result;
  EXPECT_TRUE(std::ranges::is_sorted(result.transfers, {}, &SimulatedTransfer::begin));
}

TEST(Simulated, NodesAreTheTopologys) {
  const Topology topology = Topology::parse("3,1,2");
  (void)world_of("3,1,2").run([&](const Rank& rank) {
    EXPECT_EQ(rank->node(), topology.node_of(rank->rank()));
    EXPECT_EQ(discover(*rank, Deadline::never()), topology);
    const std::vector<int> members(topology.members(rank->node()).begin(),
                                   topology.members(rank->node()).end());
    const auto node = rank->subset(members);
    EXPECT_EQ(discover(*node, Deadline::never()), Topology::uniform(1, node->size()));
  });
}

TEST(SimulatedError, ADeadlockNamesWhoWaitsForWhom) {
  std::vector<std::string> texts(3);
  (void)world_of("3x1").run([&](const Rank& rank) {
    const int self = rank->rank();
    Bytes buffer(4);
    rank->recv(buffer, (self + 1) % 3, nullptr);
    texts[static_cast<std::size_t>(self)] = thrown_by([&] { wait_for_all(*rank); });
    EXPECT_THROW((void)rank->start({}), CommError);
  });
  EXPECT_TRUE(contains(texts[0],
                       "rank 0 waits for a message of rank 1, which waits for a message of rank 2, "
                       "which waits for a message of rank 0"))
      << texts[0];
  EXPECT_TRUE(contains(texts[2], "rank 2 waits for a message of rank 0")) << texts[2];
}

TEST(SimulatedError, AMessageThatIsNotExpectedBlocksItsSender) {
  std::string text;
  (void)world_of("2x1").run([&](const Rank& rank) {
    const Bytes message(4);
    Bytes buffer(4);
    if (rank->rank() == 0) {
      rank->send(message, 1);
      text = thrown_by([&] { wait_for_all(*rank); });
    } else {
      rank->recv(buffer, 0, nullptr);
      wait_for_all(*rank);
      rank->recv(buffer, 0, nullptr);
      EXPECT_NE(thrown_by([&] { wait_for_all(*rank); }), "");
    }
  });
  EXPECT_EQ(text, "");
  (void)world_of("3x1").run([&](const Rank& rank) {
    const Bytes message(4);
    Bytes buffer(4);
    if (rank->rank() == 0) {
      rank->send(message, 1);
      text = thrown_by([&] { wait_for_all(*rank); });
    } else {
      rank->recv(buffer, 3 - rank->rank(), nullptr);
      EXPECT_NE(thrown_by([&] { wait_for_all(*rank); }), "");
    }
  });
  EXPECT_TRUE(contains(text,
                       "rank 0 waits for a receipt by rank 1, which waits for a message of rank 2, "
                       "which waits for a message of rank 1"))
      << text;
}

TEST(SimulatedError, ARankThatEndsIsNamed) {
  std::string receiver, sender;
  (void)world_of("3x1").run([&](const Rank& rank) {
    Bytes buffer(4);
    if (rank->rank() == 0) {
      rank->recv(buffer, 2, nullptr);
      receiver = thrown_by([&] { wait_for_all(*rank); });
    } else if (rank->rank() == 1) {
      rank->advance(1);  // so that rank 2 has ended
      rank->send(buffer, 2);
      sender = thrown_by([&] { wait_for_all(*rank); });
    }
  });
  EXPECT_TRUE(contains(receiver, "waits for a message of rank 2, which is gone")) << receiver;
  EXPECT_TRUE(contains(sender, "waits for a receipt by rank 2, which is gone")) << sender;
}

TEST(SimulatedError, ARankThatThrowsIsNamedAndItsErrorRethrown) {
  std::string text;
  const auto body = [&](const Rank& rank) {
    if (rank->rank() == 1) {
      rank->advance(7);
      throw std::invalid_argument("no gradient");
    }
    Bytes buffer(4);
    rank->recv(buffer, 1, nullptr);
    text = thrown_by([&] { wait_for_all(*rank); });
    throw CommError(text);
  };
  EXPECT_THROW((void)world_of("2x1").run(body), std::invalid_argument);
  EXPECT_TRUE(contains(text, "rank 1, which is gone: no gradient")) << text;
}

// A sanitizer would see a read of freed memory.
TEST(SimulatedError, MemoryOfARankThatIsGoneIsNotTouched) {
  EXPECT_NE(thrown_by([] {
              (void)world_of("2x1").run([](const Rank& rank) {
                auto buffer = std::make_unique<Bytes>(1000);
                if (rank->rank() == 0) {
                  rank->send(*buffer, 1);
                  rank->recv(*buffer, 1, nullptr);
                  (void)rank->start({});
                  rank->advance(1);
                  return;
                }
                rank->advance(10);
                rank->send(*buffer, 0);
                rank->recv(*buffer, 0, nullptr);
                wait_for_all(*rank);
              });
            }),
            "");
}

TEST(SimulatedError, BothRanksLearnThatAMessageIsTooLong) {
  for (const double receiver_seconds : {0.0, 1000.0}) {
    std::vector<std::string> texts(2);
    (void)world_of("2x1").run([&](const Rank& rank) {
      Bytes buffer(100);
      if (rank->rank() == 0) {
        rank->send(buffer, 1);
      } else {
        rank->advance(receiver_seconds);
        rank->recv(std::span(buffer).first(99), 0, nullptr);
      }
      texts[static_cast<std::size_t>(rank->rank())] = thrown_by([&] { wait_for_all(*rank); });
    });
    for (const std::string& text : texts) {
      EXPECT_TRUE(contains(text, "100 bytes from rank 0 to rank 1 is longer than its buffer of 99"))
          << text;
    }
  }
}

TEST(SimulatedError, MessagesThatNobodyReceivedAreAnError) {
  // The message has left entirely, has not begun to leave, or has not been started.
  for (const double seconds : {50.0, 0.0, -1.0}) {
    const std::string text = thrown_by([&] {
      (void)world_of("3x1").run([&](const Rank& rank) {
        const Bytes message(10);
        if (rank->rank() == 0) {
          rank->send(message, 2);
          if (seconds >= 0) (void)rank->start({});
        }
        rank->advance(std::max(seconds, 0.0));
      });
    });
    EXPECT_TRUE(contains(text, "rank 0 sent 10 bytes to rank 2 that were never received")) << text;
    EXPECT_TRUE(contains(text, ": 1")) << text;
  }
}

TEST(SimulatedError, ReceiptsThatMetNothingAreAnError) {
  for (const bool started : {true, false}) {
    const std::string text = thrown_by([&] {
      (void)world_of("3x1").run([&](const Rank& rank) {
        Bytes buffer(10);
        if (rank->rank() != 0) return;
        rank->recv(buffer, 2, nullptr);
        if (started) (void)rank->start({});
      });
    });
    EXPECT_TRUE(contains(text, "rank 0 expected up to 10 bytes of rank 2 that were never sent"))
        << text;
  }
}

TEST(SimulatedError, WhatHappensAfterAnAbortIsOver) {
  std::string text;
  double seconds = -1;
  (void)world_of("3x1").run([&](const Rank& rank) {
    if (rank->rank() == 0) {
      rank->advance(5);
      rank->abort("enough\nof that", FailureKind::environment);
      return;
    }
    Bytes buffer(10);
    rank->recv(buffer, 0, nullptr);
    const std::string why = thrown_by([&] { wait_for_all(*rank); });
    if (rank->rank() == 2) return;
    text = why;
    seconds = rank->clock();
  });
  EXPECT_TRUE(contains(text, "rank 0 aborted: enough?of that")) << text;
  EXPECT_EQ(seconds, 5);
}

TEST(SimulatedError, ATransportOutlivesItsRun) {
  std::vector<Rank> ranks;
  (void)world_of("2x1").run([&](const Rank& rank) { ranks.push_back(rank); });
  ASSERT_EQ(ranks.size(), 2U);
  ranks[0]->abort("too late", FailureKind::environment);
  EXPECT_THROW((void)ranks[0]->start({}), CommError);
  EXPECT_THROW(ranks[1]->wait({}, Deadline::never()), CommError);
  EXPECT_THROW(ranks[1]->advance(1), CommError);
}

TEST(SimulatedError, TimeDoesNotGoBackwards) {
  (void)world_of("1x1").run([](const Rank& rank) {
    EXPECT_THROW(rank->advance(-1), UsageError);
    EXPECT_THROW(rank->advance(1.0 / 0.0), UsageError);
  });
}

}  // namespace
}  // namespace winnow::comm
