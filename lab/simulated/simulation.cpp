// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "lab/simulated/simulation.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace winnow::comm {

namespace {
constexpr int kLongestChain = 8;  // the most ranks that an error names
}  // namespace

void Simulation::send(int rank, std::span<const std::byte> message, int peer) {
  expect_usable(rank);
  links_.enqueue(rank, {.message = message.data(),
                        .bytes = message.size(),
                        .to = static_cast<std::uint32_t>(peer),
                        .ticket = static_cast<std::uint32_t>(of(rank).starts.last() + 1),
                        .ready = 0});
  ++of(rank).enqueued_count;
}

void Simulation::recv(int rank, std::span<std::byte> buffer, int peer,
                      std::uint64_t* message_bytes) {
  expect_usable(rank);
  const std::uint32_t number =
      expected_.take({.buffer = buffer.data(),
                      .buffer_bytes = buffer.size(),
                      .message_bytes = message_bytes,
                      .from = static_cast<std::uint32_t>(peer),
                      .ticket = static_cast<std::uint32_t>(of(rank).starts.last() + 1),
                      .next = 0});
  of(rank).enqueued.push(expected_, number);
  ++of(rank).enqueued_count;
}

Ticket Simulation::start(int rank) {
  expect_usable(rank);
  SimulatedRank& mine = of(rank);
  WINNOW_EXPECTS(mine.starts.last() < std::numeric_limits<std::uint32_t>::max(),
                 "a simulated rank starts at most 2^32 - 1 times");
  const Ticket ticket = mine.starts.push({std::exchange(mine.enqueued_count, 0), mine.clock});
  links_.release(rank, mine.clock);
  const auto self = static_cast<std::uint32_t>(rank);
  while (mine.enqueued.first != 0) {
    const std::uint32_t number = mine.enqueued.pop(expected_);
    const Expected receipt = expected_[number];
    Pair& pair = pairs_.at(receipt.from, self);
    if (pair.arrived.first != 0 && !of(receipt.from).gone) {
      const std::uint32_t met = pair.arrived.pop(arrived_);
      meet(receipt.from, self, arrived_[met], receipt);
      arrived_.give_back(met);
      expected_.give_back(number);
    } else {
      pair.expected.push(expected_, number);
    }
  }
  return ticket;
}

void Simulation::wait(int rank, Ticket ticket) {
  expect_usable(rank);
  SimulatedRank& mine = of(rank);
  mine.starts.expect_started(ticket);
  if (aborted_by_ >= 0) fail_by_abort(rank);
  mine.awaited = ticket.number;
  mine.awaited_open = 0;
  mine.wake = mine.clock;
  for (std::uint64_t n = mine.starts.completed() + 1; n <= ticket.number; ++n) {
    mine.awaited_open += mine.starts[n].open;
    mine.wake = std::max(mine.wake, mine.starts[n].done);
  }
  if (mine.awaited_open > 0) {
    mine.waits = true;
    mine.fiber->suspend();
    expect_usable(rank);
    if (aborted_by_ >= 0) fail_by_abort(rank);
  }
  mine.starts.retire(ticket.number, [](const Started&) { return true; });
  go_on_at(mine, rank, mine.wake);
}

/// Advances a rank's clock, and lets everything due before that happen.
void Simulation::go_on_at(SimulatedRank& rank, int number, double time) {
  rank.clock = std::max(rank.clock, time);
  const bool is_next = (runnable_.empty() || rank.clock <= runnable_.time()) &&
                       (links_.idle() || rank.clock <= links_.time());
  if (is_next) {
    now_ = rank.clock;
    return;
  }
  runnable_.set(static_cast<std::uint32_t>(number), rank.clock);
  rank.fiber->suspend();
}

void Simulation::abort(int rank, std::string_view why, FailureKind kind) noexcept {
  SimulatedRank& mine = of(rank);
  if (mine.ended) return;
  mine.failure.keep(aborted_here(why, kind));
  leave(static_cast<std::uint32_t>(rank));
  tell_all(rank, why, kind);
}

/// Wakes all ranks, to learn that `rank` is the first to fail, and why, unless there was another.
void Simulation::tell_all(int rank, std::string_view why, FailureKind kind) noexcept {
  if (aborted_by_ < 0) {
    aborted_by_ = rank;
    failed_ = true;
    reason_.kind = kind;
    try {
      reason_.text = why;
    } catch (...) {
      // If there is no memory for the text, the abort stands and names only the rank.
    }
  }
  for (std::uint32_t peer = 0; peer < ranks_.size(); ++peer) wake(of(peer), peer, of(rank).clock);
}

void Simulation::fail_by_abort(int rank) {
  mark_failed(static_cast<std::uint32_t>(rank),
              aborted_by(aborted_by_, reason_.text, reason_.kind));
  of(rank).failure.fail();
}

/// Ends a rank's wait, if it waits.
void Simulation::wake(SimulatedRank& rank, std::uint32_t number, double time) {
  if (!std::exchange(rank.waits, false)) return;
  runnable_.set(number, std::max(rank.clock, time));
}

/// A message meets its receipt: at `now_`, or, if it is still on its way, before it arrives.
void Simulation::meet(std::uint32_t from, std::uint32_t to, const Arrived& message,
                      const Expected& receipt) {
  if (message.bytes > receipt.buffer_bytes) {
    const Failure why = {"a message of " + std::to_string(message.bytes) + " bytes from rank " +
                             std::to_string(from) + " to rank " + std::to_string(to) +
                             " is longer than its buffer of " +
                             std::to_string(receipt.buffer_bytes),
                         FailureKind::usage};
    mark_failed(from, why);
    mark_failed(to, why);
    tell_all(static_cast<int>(to), why.text, why.kind);
    return;
  }
  if (world_.payload == SimulatedWorld::Payload::bytes && message.bytes > 0)
    std::memcpy(receipt.buffer, message.message, message.bytes);
  if (receipt.message_bytes != nullptr) *receipt.message_bytes = message.bytes;
  complete(from, message.ticket, std::max(now_, message.left));
  complete(to, receipt.ticket, message.arrival);
}

void Simulation::complete(std::uint32_t number, std::uint32_t ticket, double time) {
  SimulatedRank& rank = of(number);
  Started& started = rank.starts[ticket];
  --started.open;
  started.done = std::max(started.done, time);
  if (!rank.waits || ticket > rank.awaited) return;
  rank.wake = std::max(rank.wake, time);
  if (--rank.awaited_open == 0) wake(rank, number, rank.wake);
}

void Simulation::mark_failed(std::uint32_t number, const Failure& why) {
  SimulatedRank& rank = of(number);
  failed_ = true;
  rank.failure.keep(of_rank(static_cast<int>(number), why));
  leave(number);
  wake(rank, number, now_);
}

/// From here on nobody touches this rank's memory, and it sends nothing more.
void Simulation::leave(std::uint32_t number) noexcept {
  of(number).gone = true;
  links_.drop(static_cast<int>(number), [](const Outgoing&) {});
}

/// The whole life of a rank, on its fiber.
void Simulation::live(const std::shared_ptr<Simulation>& self, const SimulatedWorld::Body& body,
                      int number) {
  SimulatedRank& rank = of(number);
  const auto note = [&](Failure why) {
    if (!error_) error_ = std::current_exception();
    rank.failure.keep(std::move(why));
  };
  try {
    body(std::make_shared<SimulatedTransport>(self, number));
  } catch (const std::exception& thrown) {
    note(failure_of(thrown));
  } catch (...) {
    note({"an exception of unknown type"});
  }
  const auto from = static_cast<std::uint32_t>(number);
  links_.drop(number,
              [&](const Outgoing& outgoing) { note_unmet(from, outgoing.to, outgoing.bytes); });
  leave(from);
  rank.ended = true;
}

void Simulation::resume_next() {
  const std::uint32_t number = runnable_.number();
  SimulatedRank& rank = of(number);
  now_ = rank.clock = std::max(rank.clock, runnable_.time());
  runnable_.erase(number);
  rank.fiber->resume();
  if (rank.fiber->ended()) rank.fiber.reset();
}

void Simulation::carry_next() {
  const Transit transit = links_.next();
  const Outgoing& outgoing = transit.outgoing;
  now_ = transit.begin;
  SimulatedRank& sender = of(transit.from);
  ++sender.messages_sent;
  sender.bytes_sent += outgoing.bytes;
  if (world_.trace) {
    transfers_.push_back({static_cast<int>(transit.from), static_cast<int>(outgoing.to),
                          outgoing.bytes, transit.begin, transit.arrival});
  }
  if (of(outgoing.to).gone) {
    sender.refused_by = static_cast<int>(outgoing.to);
    note_unmet(transit.from, outgoing.to, outgoing.bytes);
    return;
  }
  const Arrived message{.message = outgoing.message,
                        .bytes = outgoing.bytes,
                        .left = transit.left,
                        .arrival = transit.arrival,
                        .ticket = outgoing.ticket,
                        .next = 0};
  Pair& pair = pairs_.at(transit.from, outgoing.to);
  if (pair.expected.first == 0) {
    pair.arrived.push(arrived_, arrived_.take(message));
    return;
  }
  const std::uint32_t met = pair.expected.pop(expected_);
  meet(transit.from, outgoing.to, message, expected_[met]);
  expected_.give_back(met);
}

SimulatedResult Simulation::run(const std::shared_ptr<Simulation>& self,
                                const SimulatedWorld::Body& body) {
  for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
    of(number).fiber = std::make_unique<Fiber>(
        [this, &self, &body, number] { live(self, body, static_cast<int>(number)); });
    runnable_.set(number, 0);
  }
  for (;;) {
    if (!runnable_.empty() && (links_.idle() || runnable_.time() <= links_.time())) {
      resume_next();
    } else if (!links_.idle()) {
      carry_next();
    } else if (std::ranges::any_of(ranks_, &SimulatedRank::waits)) {
      stall();
    } else {
      break;
    }
  }
  if (error_) std::rethrow_exception(error_);
  if (!failed_) expect_nothing_left();
  SimulatedResult result;
  for (const SimulatedRank& rank : ranks_) {
    result.seconds.push_back(rank.clock);
    result.bytes_sent.push_back(rank.bytes_sent);
    result.messages_sent.push_back(rank.messages_sent);
  }
  for (int node = 0; node < world_.topology.nodes(); ++node)
    result.uplink_bytes.push_back(links_.uplink_bytes(node));
  result.transfers = std::move(transfers_);
  return result;
}

/// Nothing more can happen and ranks_ wait: fails all of them.
void Simulation::stall() {
  std::vector<Awaited> awaited(ranks_.size(), Awaited{-1, nullptr});
  for (std::uint32_t number = 0; number < ranks_.size(); ++number)
    if (of(number).waits) awaited[number] = awaited_by(number);
  for (std::uint32_t number = 0; number < ranks_.size(); ++number)
    if (of(number).waits) mark_failed(number, {chain(number, awaited)});
}

Awaited Simulation::awaited_by(std::uint32_t number) {
  const SimulatedRank& rank = of(number);
  for (std::uint32_t peer = 0; peer < ranks_.size(); ++peer) {
    const List& receipts = pairs_.at(peer, number).expected;
    if (receipts.first != 0 && expected_[receipts.first].ticket <= rank.awaited)
      return {static_cast<int>(peer), " waits for a message of rank "};
    const List& messages = pairs_.at(number, peer).arrived;
    if (messages.first != 0 && arrived_[messages.first].ticket <= rank.awaited)
      return {static_cast<int>(peer), " waits for a receipt by rank "};
  }
  return {rank.refused_by, " waits for a receipt by rank "};
}

/// "no message is under way any more and rank 0 waits for a message of rank 1, which ...". A rank
/// that awaits nothing has ended.
std::string Simulation::chain(std::uint32_t number, const std::vector<Awaited>& awaited) const {
  std::string text = "no message is under way any more and rank " + std::to_string(number);
  std::vector<std::uint32_t> named;
  for (std::uint32_t at = number;;) {
    named.push_back(at);
    if (awaited[at].peer < 0) return text += " waits for what was lost";
    text += awaited[at].what;
    text += std::to_string(awaited[at].peer);
    at = static_cast<std::uint32_t>(awaited[at].peer);
    if (awaited[at].what == nullptr)
      return text.append(", which is gone: ") += ranks_[at].why_gone().text;
    if (std::ranges::find(named, at) != named.end()) return text;
    if (static_cast<int>(named.size()) == kLongestChain) return text += ", and so on";
    text += ", which";
  }
}

void Simulation::note_unmet(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
  if (++unmet_count_ > 1) return;
  first_unmet_ = "rank " + std::to_string(from) + " sent " + std::to_string(bytes) +
                 " bytes to rank " + std::to_string(to) + " that were never received";
}

void Simulation::note_unmet(std::uint32_t to, const Expected& receipt) {
  if (++unmet_count_ > 1) return;
  first_unmet_ = "rank " + std::to_string(to) + " expected up to " +
                 std::to_string(receipt.buffer_bytes) + " bytes of rank " +
                 std::to_string(receipt.from) + " that were never sent";
}

void Simulation::expect_nothing_left() {
  const bool may_be_left = arrived_.used() > 0 || expected_.used() > 0;  // looking is slow
  for (std::uint32_t to = 0; may_be_left && to < ranks_.size(); ++to) {
    for (std::uint32_t from = 0; from < ranks_.size(); ++from) {
      Pair& pair = pairs_.at(from, to);
      while (pair.arrived.first != 0)
        note_unmet(from, to, arrived_[pair.arrived.pop(arrived_)].bytes);
      while (pair.expected.first != 0) note_unmet(to, expected_[pair.expected.pop(expected_)]);
    }
    List& enqueued = of(to).enqueued;
    while (enqueued.first != 0) note_unmet(to, expected_[enqueued.pop(expected_)]);
  }
  if (unmet_count_ == 0) return;
  throw CommError(first_unmet_ +
                  "; messages and receipts that met nothing: " + std::to_string(unmet_count_));
}

}  // namespace winnow::comm
