// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <winnow/conformance/world.hpp>
#include <winnow/error.hpp>

// Checks of send, recv, start, wait, test and abort: order, sizes, tickets and errors.
namespace winnow::conformance {

constexpr std::byte kUntouched{0xA5};

/// Message `number` from one rank to another; its bytes identify all three.
inline Bytes pattern(int from, int to, std::size_t number, std::size_t size) {
  Bytes bytes(size);
  std::uint32_t state = static_cast<std::uint32_t>(from * 7919 + to * 104729) +
                        static_cast<std::uint32_t>(number) * 1299709U;
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

/// The text of the CommError that `call` throws, or empty.
inline std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void expect_unusable(const Rank& rank) {
  Transport& transport = rank.transport();
  if (rank.size() > 1) {
    EXPECT_THROW(transport.send({}, rank.peer()), CommError);
    EXPECT_THROW(transport.recv({}, rank.peer(), nullptr), CommError);
  }
  EXPECT_THROW((void)rank.start(), CommError);
  EXPECT_THROW(transport.wait({}, soon()), CommError);
  EXPECT_THROW((void)transport.test({}, soon()), CommError);
}

/// Every rank exchanges messages of `sizes` with every other one, `per_start` to each peer in a
/// start. Receive buffers are `slack` bytes longer, if sizes travel.
inline void exchange_all(const Rank& rank, const std::vector<std::size_t>& sizes,
                         std::size_t slack = 0, std::size_t per_start = 1) {
  Transport& transport = rank.transport();
  if (!transport.sizes_travel()) slack = 0;
  struct Pair {
    int peer;
    std::size_t number;
    std::span<std::byte> received;
    std::uint64_t message_bytes = 99;
  };
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<Ticket> tickets;
  for (std::size_t n = 0; n < sizes.size(); ++n) {
    for (int peer = 0; peer < rank.size(); ++peer) {
      if (peer == rank.rank()) continue;
      pairs.push_back(std::make_unique<Pair>(Pair{
          .peer = peer, .number = n, .received = rank.place(Bytes(sizes[n] + slack, kUntouched))}));
      transport.send(rank.place(pattern(rank.rank(), peer, n, sizes[n])), peer);
      transport.recv(pairs.back()->received, peer, &pairs.back()->message_bytes);
    }
    if ((n + 1) % per_start == 0) tickets.push_back(rank.start());
  }
  tickets.push_back(rank.start());
  transport.progress();
  transport.wait(tickets[tickets.size() / 2], soon());
  transport.wait(tickets.back(), soon());
  transport.wait(tickets.front(), soon());  // long done
  for (const auto& pair : pairs) {
    Bytes expected = pattern(pair->peer, rank.rank(), pair->number, sizes[pair->number]);
    EXPECT_EQ(pair->message_bytes, expected.size());
    expected.resize(expected.size() + slack, kUntouched);
    EXPECT_TRUE(rank.received(pair->received) == expected)
        << "message " << pair->number << " from " << pair->peer;
  }
}

// Lengths around 64 straddle the pieces of a transport that was told to cut so short.
inline const std::vector<std::size_t> kSizes{0,   1,   63,   64,   65,     0, 127,
                                             128, 129, 1000, 4096, 100001, 3};

inline void messages_keep_order_size_and_content(const World& world) {
  for_each_size(world, [](Rank& rank) { exchange_all(rank, kSizes); });
}

inline void buffers_may_be_longer_than_messages(const World& world) {
  for_each_size(world, [](Rank& rank) {
    exchange_all(rank, kSizes, 1, 2);
    exchange_all(rank, kSizes, 200, 5);
  });
}

inline void many_messages_may_be_under_way(const World& world) {
  for_each_size(world, [](Rank& rank) {
    exchange_all(rank, std::vector<std::size_t>(300, 17), 0, 300);
    exchange_all(rank, std::vector<std::size_t>(300, 65), 70, 7);
  });
}

inline void a_message_may_span_megabytes(const World& world) {
  for_each_size(world, [](Rank& rank) {
    exchange_all(rank, {std::size_t{5} << 20, 1, (std::size_t{1} << 20) + 1}, 64);
  });
}

// Random sizes and grouping, equal at both ends; waits at random depth.
inline void random_traffic_arrives(const World& world) {
  for_each_size(world, [](Rank& rank) {
    std::mt19937 random(12345);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::size_t> sizes(1 + random() % 12);
      for (std::size_t& size : sizes) size = random() % 4 == 0 ? random() % 9000 : random() % 140;
      exchange_all(rank, sizes, random() % 3, 1 + random() % 4);
    }
  });
}

// Rank 1 answers only after wait has returned for the question's ticket, though the receipt of the
// answer is already under way. Not for transports where a start must end before the next one
// begins: rank 1 would wait for a message behind one that waits for it.
inline void wait_ignores_later_tickets(const World& world) {
  for_each_size(world, [](Rank& rank) {
    Transport& transport = rank.transport();
    if (!transport.sizes_travel()) return;
    if (rank.rank() > 1 || rank.size() < 2) return;
    const int peer = 1 - rank.rank();
    const auto mine = rank.place(pattern(rank.rank(), peer, 0, 70));
    const auto question = rank.place(Bytes(70)), answer = rank.place(Bytes(70));
    if (rank.rank() == 0) {
      transport.recv(question, peer, nullptr);
      const Ticket first = rank.start();
      transport.recv(answer, peer, nullptr);
      const Ticket second = rank.start();
      transport.wait(first, soon());
      transport.send(mine, peer);
      rank.finish();
      transport.wait(second, soon());
    } else {
      transport.send(mine, peer);
      rank.finish();
      transport.recv(answer, peer, nullptr);
      rank.finish();
      transport.send(mine, peer);
      rank.finish();
    }
    EXPECT_TRUE(rank.received(answer) == pattern(peer, rank.rank(), 0, 70));
  });
}

// Rank 0 waits for rank 1 while rank 1 waits for rank 0 to take what an earlier start expects.
inline void wait_moves_everything_that_was_started(const World& world) {
  for_each_size(world, [](Rank& rank) {
    Transport& transport = rank.transport();
    if (rank.rank() > 1 || rank.size() < 2) return;
    const Bytes large = pattern(0, 1, 0, 1 << 20);
    const auto token = rank.place(Bytes(1)), message = rank.place(large);
    if (rank.rank() == 0) {
      const auto received = rank.place(Bytes(large.size()));
      transport.recv(token, 1, nullptr);
      const Ticket first = rank.start();
      transport.recv(received, 1, nullptr);
      const Ticket second = rank.start();
      transport.wait(first, soon());
      transport.wait(second, soon());
      EXPECT_TRUE(rank.received(received) == large);
    } else {
      transport.send(token, 0);
      transport.send(message, 0);
      rank.finish();
    }
  });
}

// Polls the last ticket only: the earlier ones are then done, too.
inline void test_polls_until_all_is_done(const World& world) {
  for_each_size(world, [](Rank& rank) {
    Transport& transport = rank.transport();
    if (rank.size() == 1) return;
    std::vector<std::span<std::byte>> received;
    std::vector<Ticket> tickets;
    for (std::size_t n = 0; n < 5; ++n) {
      received.push_back(rank.place(Bytes(1000 * n)));
      transport.send(rank.place(pattern(rank.rank(), rank.peer(), n, 1000 * n)), rank.peer());
      transport.recv(received.back(), rank.peer(-1), nullptr);
      tickets.push_back(rank.start());
    }
    while (!transport.test(tickets.back(), soon())) std::this_thread::yield();
    for (const Ticket ticket : tickets) EXPECT_TRUE(transport.test(ticket, soon()));
    for (std::size_t n = 0; n < received.size(); ++n) {
      EXPECT_TRUE(rank.received(received[n]) == pattern(rank.peer(-1), rank.rank(), n, 1000 * n));
    }
  });
}

// One thread at a time, but not always the same one.
inline void any_thread_may_call_if_it_says_so(const World& world) {
  for_each_size(world, [](Rank& rank) {
    if (!rank.transport().allows_threads()) return;
    for (int round = 0; round < 3; ++round) {
      exchange_all(rank, {100, 0, 5000});
      std::exception_ptr error;
      std::thread([&] {
        try {
          exchange_all(rank, {100, 0, 5000});
        } catch (const std::exception&) {
          error = std::current_exception();
        }
      }).join();
      if (error) std::rethrow_exception(error);
    }
  });
}

inline void a_start_with_nothing_enqueued_is_done(const World& world) {
  for_each_size(world, [](Rank& rank) { rank.finish(); });
}

inline void counts_the_bytes_it_sends(const World& world) {
  for_each_size(world, [](Rank& rank) {
    const std::uint64_t before = rank.transport().bytes_sent();
    exchange_all(rank, {100, 0, 1000}, 5);
    EXPECT_EQ(rank.transport().bytes_sent() - before,
              1100U * static_cast<unsigned>(rank.size() - 1));
  });
}

inline void refuses_peers_and_tickets_that_are_not(const World& world) {
  for_each_size(world, [](Rank& rank) {
    Transport& transport = rank.transport();
    const auto message = rank.place(Bytes(3)), buffer = rank.place(Bytes(3));
    for (const int peer : {-1, rank.rank(), rank.size()}) {
      EXPECT_THROW(transport.send(message, peer), UsageError);
      EXPECT_THROW(transport.recv(buffer, peer, nullptr), UsageError);
    }
    EXPECT_THROW(transport.wait(Ticket{1}, soon()), UsageError);
    EXPECT_EQ(transport.bytes_sent(), 0U);
    exchange_all(rank, {10});  // and nothing of it was enqueued
  });
}

inline void a_deadline_ends_a_wait_for_a_message_that_never_comes(const World& world) {
  for_each_size(world, [&](Rank& rank) {
    if (rank.size() == 1) return;
    exchange_all(rank, {10});
    rank.transport().recv(rank.place(Bytes(100)), rank.peer(), nullptr);
    const Ticket ticket = rank.start();
    const std::string said = thrown_by([&] { rank.transport().wait(ticket, briefly()); });
    EXPECT_NE(said, "");
    // A peer whose deadline passed first may have aborted.
    const bool named = contains(said, "rank " + std::to_string(rank.peer()));
    EXPECT_TRUE(!world.names_ranks || named || contains(said, "aborted: ")) << said;
    expect_unusable(rank);
  });
}

inline void a_deadline_ends_a_wait_for_a_receiver_that_never_comes(const World& world) {
  for_each_size(world, [](Rank& rank) {
    if (rank.size() == 1) return;
    // More than a library sends without a receiver: sockets hold up to 37 MiB by Linux's defaults.
    rank.transport().send(rank.place(Bytes(std::size_t{64} << 20)), rank.peer());
    const Ticket ticket = rank.start();
    EXPECT_THROW(rank.transport().wait(ticket, briefly()), CommError);
    expect_unusable(rank);
  });
}

/// Waits for a message of `peer` without a deadline. An abort may also be noticed before the wait.
inline void wait_for_ever(const Rank& rank, int peer) {
  rank.transport().recv(rank.place(Bytes(100)), peer, nullptr);
  rank.transport().wait(rank.start(), Deadline::never());
}

inline void abort_wakes_peers_and_says_why(const World& world) {
  for_each_size(world, [&](Rank& rank) {
    const int culprit = rank.size() - 1;
    if (rank.rank() == culprit) {
      rank.transport().abort("a gradient went missing");
      rank.transport().abort("a second reason");
    } else {
      const std::string text = thrown_by([&] { wait_for_ever(rank, rank.peer()); });
      const std::string who = "rank " + std::to_string(culprit) + " aborted: ";
      EXPECT_TRUE(contains(text, (world.names_ranks ? who : "") + "a gradient went missing"))
          << text;
    }
    expect_unusable(rank);
  });
}

inline void abort_takes_long_reasons(const World& world) {
  for_each_size(world, [](Rank& rank) {
    if (rank.rank() == 0) {
      rank.transport().abort(std::string(100000, 'x'));
    } else {
      EXPECT_TRUE(contains(thrown_by([&] { wait_for_ever(rank, 0); }), "xxxx"));
    }
  });
}

// Also shorter ones, if sizes do not travel.
inline void refuses_messages_that_do_not_fit_their_buffer(const World& world) {
  struct Case {
    std::size_t message, buffer;
  };
  for (const Case c : {Case{1, 0}, Case{100, 99}, Case{65, 64}, Case{64, 63}, Case{192, 128},
                       Case{128, 127}, Case{std::size_t{4} << 20, 100000}, Case{99, 100}}) {
    for_each_size(world, [&](Rank& rank) {
      Transport& transport = rank.transport();
      const bool fits = transport.sizes_travel() && c.message <= c.buffer;
      if (rank.size() < 2 || rank.rank() > 1 || fits) return;
      if (rank.rank() == 1) {
        // Notices by itself, or when the receiver aborts.
        EXPECT_THROW(
            {
              transport.send(rank.place(Bytes(c.message)), 0);
              transport.recv(rank.place(Bytes(1)), 0, nullptr);
              rank.finish();
            },
            CommError);
        return;
      }
      const auto buffer = rank.place(Bytes(c.buffer + 1000, kUntouched));
      transport.recv(buffer.first(c.buffer), 1, nullptr);
      const Ticket ticket = rank.start();
      const std::string text = thrown_by([&] { transport.wait(ticket, soon()); });
      EXPECT_NE(text, "");
      const char* const why =
          transport.sizes_travel() ? "longer than its buffer" : "a receipt of exactly";
      EXPECT_TRUE(!world.names_ranks || contains(text, why)) << text;
      transport.abort(text);
      EXPECT_TRUE(rank.received(buffer.subspan(c.buffer)) == Bytes(1000, kUntouched));
      expect_unusable(rank);
    });
  }
}

}  // namespace winnow::conformance
