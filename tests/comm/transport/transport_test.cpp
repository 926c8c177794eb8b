// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Promises of every transport: order, sizes, tickets, errors, and no allocation after warm-up. The
// collectives are in collectives_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/count_allocations.hpp"
#include "tests/harness/ranks.hpp"

namespace winnow {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::byte kUntouched{0xA5};

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

// Message `number` from one rank to another; its bytes identify all three.
Bytes pattern(int from, int to, int number, std::size_t size) {
  Bytes bytes(size);
  std::uint32_t state = static_cast<std::uint32_t>(from * 7919 + to * 104729 + number * 1299709);
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

void for_each_size(const tests::RankBody& body) {
  for (const int ranks : tests::rank_counts()) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    tests::run_ranks(ranks, body);
  }
}

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

void expect_unusable(Transport& transport) {
  const Bytes nothing;
  if (transport.size() > 1) {
    const int peer = (transport.rank() + 1) % transport.size();
    EXPECT_THROW(transport.send(nothing, peer), CommError);
    EXPECT_THROW(transport.recv({}, peer, nullptr), CommError);
  }
  EXPECT_THROW(transport.start({}), CommError);
  EXPECT_THROW(transport.wait({}, soon()), CommError);
}

// Every rank exchanges messages of `sizes` with every other one. `slack`: extra bytes of receive
// buffers, if sizes travel. `per_ticket`: messages to each peer per start.
void exchange_all(Transport& transport, const std::vector<std::size_t>& sizes, std::size_t slack,
                  std::size_t per_ticket) {
  const int size = transport.size(), rank = transport.rank();
  if (!transport.sizes_travel()) slack = 0;
  struct Pair {
    Bytes sent, received;
    std::uint64_t message_bytes = 99;
  };
  std::vector<std::vector<Pair>> pairs(static_cast<std::size_t>(size));
  std::vector<Ticket> tickets;
  for (std::size_t n = 0; n < sizes.size(); ++n) {
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      auto& list = pairs[static_cast<std::size_t>(peer)];
      list.reserve(sizes.size());
      Pair& pair = list.emplace_back();
      pair.sent = pattern(rank, peer, static_cast<int>(n), sizes[n]);
      pair.received.assign(sizes[n] + slack, kUntouched);
      transport.send(pair.sent, peer);
      transport.recv(pair.received, peer, &pair.message_bytes);
    }
    if ((n + 1) % per_ticket == 0) tickets.push_back(transport.start({}));
  }
  tickets.push_back(transport.start({}));
  transport.wait(tickets[tickets.size() / 2], soon());
  transport.wait(tickets.back(), soon());
  transport.wait(tickets.front(), soon());  // long done
  for (int peer = 0; peer < size; ++peer) {
    for (std::size_t n = 0; n < pairs[static_cast<std::size_t>(peer)].size(); ++n) {
      const Pair& pair = pairs[static_cast<std::size_t>(peer)][n];
      Bytes expected = pattern(peer, rank, static_cast<int>(n), sizes[n]);
      expected.resize(sizes[n] + slack, kUntouched);
      EXPECT_EQ(pair.message_bytes, sizes[n]);
      EXPECT_TRUE(pair.received == expected) << "message " << n << " from " << peer;
    }
  }
}

const std::vector<std::size_t> kSizes{0, 1, 63, 64, 65, 0, 127, 128, 129, 1000, 4096, 100001, 3};

TEST(Transport, MessagesKeepOrderSizeAndContent) {
  for_each_size([](auto transport) { exchange_all(*transport, kSizes, 0, 1); });
}

TEST(Transport, BuffersMayBeLongerThanMessages) {
  for_each_size([](auto transport) {
    exchange_all(*transport, kSizes, 1, 2);
    exchange_all(*transport, kSizes, 200, 5);
  });
}

TEST(Transport, ManyMessagesMayBeUnderWay) {
  for_each_size([](auto transport) {
    exchange_all(*transport, std::vector<std::size_t>(300, 17), 0, 300);
    exchange_all(*transport, std::vector<std::size_t>(300, 65), 70, 7);
  });
}

TEST(Transport, AMessageMaySpanMegabytes) {
  for_each_size([](auto transport) {
    exchange_all(*transport, {std::size_t{5} << 20, 1, (std::size_t{1} << 20) + 1}, 64, 1);
  });
}

// Random sizes and grouping, equal at both ends; waits at random depth.
TEST(Transport, RandomTrafficArrives) {
  for_each_size([](auto transport) {
    std::mt19937 random(12345);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::size_t> sizes(1 + random() % 12);
      for (std::size_t& size : sizes) size = random() % 4 == 0 ? random() % 9000 : random() % 140;
      exchange_all(*transport, sizes, random() % 3, 1 + random() % 4);
    }
  });
}

// Rank 1 answers only after wait has returned for the question's ticket, though the receipt of the
// answer is already under way. Not for transports where a start must end before the next one
// begins: rank 1 would wait for a message behind one that waits for it.
TEST(Transport, WaitIgnoresLaterTickets) {
  for_each_size([](auto transport) {
    const int rank = transport->rank();
    if (!transport->sizes_travel()) return;
    if (rank > 1 || transport->size() < 2) return;
    const int peer = 1 - rank;
    const Bytes mine = pattern(rank, peer, 0, 70);
    Bytes question(70), answer(70);
    if (rank == 0) {
      transport->recv(question, peer, nullptr);
      const Ticket first = transport->start({});
      transport->recv(answer, peer, nullptr);
      const Ticket second = transport->start({});
      transport->wait(first, soon());
      transport->send(mine, peer);
      transport->wait(transport->start({}), soon());
      transport->wait(second, soon());
    } else {
      transport->send(mine, peer);
      transport->wait(transport->start({}), soon());
      transport->recv(answer, peer, nullptr);
      transport->wait(transport->start({}), soon());
      transport->send(mine, peer);
      transport->wait(transport->start({}), soon());
    }
    EXPECT_TRUE(answer == pattern(peer, rank, 0, 70));
  });
}

// Rank 0 waits for rank 1 while rank 1 waits for rank 0 to take what an earlier start expects.
TEST(Transport, WaitMovesEverythingThatWasStarted) {
  for_each_size([](auto transport) {
    const int rank = transport->rank();
    if (rank > 1 || transport->size() < 2) return;
    const Bytes large = pattern(0, 1, 0, 1 << 20);
    Bytes received(large.size());
    std::byte token{1};
    if (rank == 0) {
      transport->recv({&token, 1}, 1, nullptr);
      const Ticket first = transport->start({});
      transport->recv(received, 1, nullptr);
      const Ticket second = transport->start({});
      transport->wait(first, soon());
      transport->wait(second, soon());
      EXPECT_TRUE(received == large);
    } else {
      transport->send({&token, 1}, 0);
      transport->send(large, 0);
      transport->wait(transport->start({}), soon());
    }
  });
}

TEST(Transport, AStartWithNothingEnqueuedIsDone) {
  for_each_size([](auto transport) { transport->wait(transport->start({}), soon()); });
}

TEST(Transport, CountsTheBytesItSends) {
  for_each_size([](auto transport) {
    EXPECT_EQ(transport->bytes_sent(), 0u);
    exchange_all(*transport, {100, 0, 1000}, 5, 1);
    EXPECT_EQ(transport->bytes_sent(), 1100u * static_cast<unsigned>(transport->size() - 1));
  });
}

TEST(Transport, RefusesPeersAndTicketsThatAreNot) {
  for_each_size([](auto transport) {
    const Bytes message(3);
    Bytes buffer(3);
    for (const int peer : {-1, transport->rank(), transport->size()}) {
      EXPECT_THROW(transport->send(message, peer), UsageError);
      EXPECT_THROW(transport->recv(buffer, peer, nullptr), UsageError);
    }
    EXPECT_THROW(transport->wait(Ticket{1}, soon()), UsageError);
    EXPECT_EQ(transport->bytes_sent(), 0u);
    exchange_all(*transport, {10}, 0, 1);  // and nothing of it was enqueued
  });
}

TEST(Transport, ADeadlineEndsAWaitForAMessageThatNeverComes) {
  for_each_size([](auto transport) {
    if (transport->size() == 1) return;
    exchange_all(*transport, {10}, 0, 1);
    Bytes buffer(100);
    const int peer = (transport->rank() + 1) % transport->size();
    transport->recv(buffer, peer, nullptr);
    const Ticket ticket = transport->start({});
    const std::string said =
        thrown_by([&] { transport->wait(ticket, Deadline::after(std::chrono::milliseconds(20))); });
    // A peer whose deadline passed first may have aborted.
    const bool named = said.find("rank " + std::to_string(peer)) != std::string::npos;
    EXPECT_TRUE(named || said.find("aborted: ") != std::string::npos) << said;
    expect_unusable(*transport);
  });
}

TEST(Transport, ADeadlineEndsAWaitForAReceiverThatNeverComes) {
  for_each_size([](auto transport) {
    if (transport->size() == 1) return;
    // More than MPI sends without a receiver.
    const Bytes message(std::size_t{4} << 20);
    transport->send(message, (transport->rank() + 1) % transport->size());
    const Ticket ticket = transport->start({});
    EXPECT_THROW(transport->wait(ticket, Deadline::after(std::chrono::milliseconds(20))),
                 CommError);
    expect_unusable(*transport);
  });
}

TEST(Transport, AbortWakesPeersAndSaysWhoAndWhy) {
  for_each_size([](auto transport) {
    const int culprit = transport->size() - 1;
    if (transport->rank() == culprit) {
      transport->abort("a gradient went missing");
      transport->abort("a second reason");
    } else {
      Bytes buffer(100);
      transport->recv(buffer, (transport->rank() + 1) % transport->size(), nullptr);
      const Ticket ticket = transport->start({});
      const std::string text = thrown_by([&] { transport->wait(ticket, Deadline::never()); });
      EXPECT_NE(text.find("rank " + std::to_string(culprit) + " aborted: a gradient went missing"),
                std::string::npos)
          << text;
    }
    expect_unusable(*transport);
  });
}

TEST(Transport, AbortTakesLongReasons) {
  for_each_size([](auto transport) {
    if (transport->rank() == 0) {
      transport->abort(std::string(100000, 'x'));
    } else {
      Bytes buffer(1);
      transport->recv(buffer, 0, nullptr);
      const Ticket ticket = transport->start({});
      EXPECT_NE(thrown_by([&] {
                  transport->wait(ticket, Deadline::never());
                }).find("rank 0 aborted: xxxx"),
                std::string::npos);
    }
  });
}

// Also shorter ones, if sizes do not travel.
TEST(Transport, RefusesMessagesThatDoNotFitTheirBuffer) {
  struct Case {
    std::size_t message, buffer;
  };
  for (const Case c : {Case{1, 0}, Case{100, 99}, Case{65, 64}, Case{64, 63}, Case{192, 128},
                       Case{128, 127}, Case{std::size_t{4} << 20, 100000}, Case{99, 100}}) {
    for_each_size([c](auto transport) {
      const int rank = transport->rank();
      const bool fits = transport->sizes_travel() && c.message <= c.buffer;
      if (transport->size() < 2 || rank > 1 || fits) return;
      const Bytes message(c.message);
      Bytes buffer(c.buffer + 1000, kUntouched), answer(1);
      if (rank == 1) {
        // Notices by itself, or when the receiver aborts.
        EXPECT_THROW(
            {
              transport->send(message, 0);
              transport->recv(answer, 0, nullptr);
              transport->wait(transport->start({}), soon());
            },
            CommError);
        return;
      }
      transport->recv(std::span(buffer).first(c.buffer), 1, nullptr);
      const Ticket ticket = transport->start({});
      const std::string text = thrown_by([&] { transport->wait(ticket, soon()); });
      const char* const why =
          transport->sizes_travel() ? "longer than its buffer" : "a receipt of exactly";
      EXPECT_NE(text.find(why), std::string::npos) << text;
      transport->abort(text);
      EXPECT_TRUE(std::all_of(buffer.begin() + static_cast<std::ptrdiff_t>(c.buffer), buffer.end(),
                              [](std::byte byte) { return byte == kUntouched; }));
      expect_unusable(*transport);
    });
  }
}

TEST(Transport, AllocatesNothingInSteadyState) {
  for_each_size([](auto transport) {
    Workspace workspace;
    const Exec exec{.workspace = &workspace};
    const int size = transport->size(), rank = transport->rank();
    std::vector<float> elements(200000);
    Bytes mine(5000), all(mine.size() * static_cast<std::size_t>(size)), arrived(5000);
    const auto step = [&] {
      transport->Transport::all_reduce(exec, elements, ReduceOp::sum, soon());
      transport->all_reduce(exec, elements, ReduceOp::sum, soon());
      transport->all_gather(exec, mine, all, soon());
      transport->all_gather(exec, std::span(mine).first(3),
                            std::span(all).first(3 * static_cast<std::size_t>(size)), soon());
      if (size == 1) return;
      for (int n = 0; n < 40; ++n) {
        transport->send(mine, (rank + 1) % size);
        transport->recv(arrived, (rank + size - 1) % size, nullptr);
        (void)transport->start(exec);
      }
      transport->wait(transport->start(exec), soon());
    };
    step();
    step();
    const std::uint64_t before = tests::thread_allocations(), blocks = workspace.allocations();
    for (int n = 0; n < 10; ++n) step();
    EXPECT_EQ(tests::thread_allocations(), before);
    EXPECT_EQ(workspace.allocations(), blocks);
  });
}

}  // namespace
}  // namespace winnow
