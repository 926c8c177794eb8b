// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/failure_latch.hpp"
#include "comm/transport/ticket_queue.hpp"
#include "lab/simulated/fiber.hpp"
#include "lab/simulated/links.hpp"
#include "lab/simulated/pool.hpp"
#include "lab/simulated/simulated.hpp"
#include "lab/simulated/timetable.hpp"

namespace winnow::comm {

/// A receipt still without a message.
struct Expected {
  std::byte* buffer;
  std::uint64_t buffer_bytes;
  std::uint64_t* message_bytes;
  std::uint32_t from, ticket, next;
};

/// A message on the links, or past them, still without a receipt.
struct Arrived {
  const std::byte* message;
  std::uint64_t bytes;
  double left, arrival;
  std::uint32_t ticket, next;
};

/// From one rank to another; at least one of the lists is empty.
struct Pair {
  List expected, arrived;
};

/// Zeroed memory that costs nothing until touched: most pairs of a large world never meet.
class Pairs {
 public:
  explicit Pairs(std::size_t ranks)
      : ranks_(ranks), pairs_(static_cast<Pair*>(std::calloc(ranks * ranks, sizeof(Pair)))) {
    if (pairs_ == nullptr) throw std::bad_alloc();
  }
  Pair& at(std::uint32_t from, std::uint32_t to) { return pairs_.get()[to * ranks_ + from]; }

 private:
  struct Free {
    void operator()(Pair* pairs) const { std::free(pairs); }
  };
  std::size_t ranks_;
  std::unique_ptr<Pair, Free> pairs_;
};

/// One start.
struct Started {
  std::uint64_t open;  // messages and receipts not done
  double done;         // when the last finished one finished
};

/// A rank of a Simulation.
struct SimulatedRank {
  std::unique_ptr<Fiber> fiber;
  double clock = 0;
  TicketQueue<Started> starts;       // not waited for yet
  List enqueued{};                   // receipts since the last start
  std::uint64_t enqueued_count = 0;  // and messages
  std::uint64_t messages_sent = 0, bytes_sent = 0;

  bool waits = false;
  std::uint64_t awaited = 0;       // while it waits: the ticket,
  std::uint64_t awaited_open = 0;  // how much of it and earlier ones is unfinished,
  double wake = 0;                 // and when the last finished one finished
  int refused_by = -1;             // a rank that had gone before a message reached it

  bool gone = false;   // its memory must not be touched any more
  bool ended = false;  // its body has ended
  FailureLatch failure;

  Failure why_gone() const {
    return failure.failed() ? failure.first() : Failure{"its body has ended"};
  }
};

/// Whom a rank waits for first.
struct Awaited {
  int peer;
  const char* what;
};

/// One run. The next event is the earliest of: a rank resumes (first, in a tie), a message leaves.
/// Both wait in timetables. Time only goes forwards, and no effect of a transit precedes it: when a
/// message leaves, its arrival is known, and so is whom it wakes and when.
class Simulation {
 public:
  explicit Simulation(const SimulatedWorld& given)
      : world_(given),
        links_(world_.topology, world_.links),
        pairs_(static_cast<std::size_t>(world_.topology.ranks())),
        ranks_(static_cast<std::size_t>(world_.topology.ranks())),
        runnable_(ranks_.size()) {}

  SimulatedResult run(const std::shared_ptr<Simulation>& self, const SimulatedWorld::Body& body);

  double clock(int rank) const { return ranks_[static_cast<std::size_t>(rank)].clock; }
  void advance(int rank, double seconds) { go_on_at(of(rank), rank, of(rank).clock + seconds); }
  void send(int rank, std::span<const std::byte> message, int peer);
  void recv(int rank, std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes);
  Ticket start(int rank);
  void wait(int rank, Ticket ticket);
  void abort(int rank, std::string_view why, FailureKind kind) noexcept;
  const SimulatedWorld& world() const { return world_; }
  const Topology& topology() const { return world_.topology; }
  void expect_usable(int number) const {
    const SimulatedRank& rank = ranks_[static_cast<std::size_t>(number)];
    if (rank.failure.failed() || rank.ended) fail_by(rank.why_gone());
  }

 private:
  SimulatedRank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  SimulatedRank& of(std::uint32_t rank) { return ranks_[rank]; }

  void live(const std::shared_ptr<Simulation>& self, const SimulatedWorld::Body& body, int number);
  void resume_next();
  void carry_next();
  void go_on_at(SimulatedRank& rank, int number, double time);
  void wake(SimulatedRank& rank, std::uint32_t number, double time);
  void meet(std::uint32_t from, std::uint32_t to, const Arrived& message, const Expected& receipt);
  void complete(std::uint32_t number, std::uint32_t ticket, double time);
  void mark_failed(std::uint32_t number, const Failure& why);
  void leave(std::uint32_t number) noexcept;
  void tell_all(int rank, std::string_view why, FailureKind kind) noexcept;
  [[noreturn]] void fail_by_abort(int rank);
  void stall();
  Awaited awaited_by(std::uint32_t number);
  std::string chain(std::uint32_t number, const std::vector<Awaited>& awaited) const;
  void note_unmet(std::uint32_t from, std::uint32_t to, std::uint64_t bytes);
  void note_unmet(std::uint32_t to, const Expected& receipt);
  void expect_nothing_left();

  SimulatedWorld world_;
  SimulatedLinks links_;
  Pairs pairs_;
  std::vector<SimulatedRank> ranks_;
  Timetable runnable_;
  Pool<Expected> expected_;
  Pool<Arrived> arrived_;
  std::vector<SimulatedTransfer> transfers_;
  double now_ = 0;  // time of the current event
  int aborted_by_ = -1;
  Failure reason_;            // why it was aborted
  bool failed_ = false;       // some rank has failed
  std::exception_ptr error_;  // the first that left a body

  // Messages without a receipt, and receipts without a message.
  std::uint64_t unmet_count_ = 0;
  std::string first_unmet_;
};

}  // namespace winnow::comm
