// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/local/local.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/failure_latch.hpp"
#include "comm/transport/fifo.hpp"
#include "comm/transport/gather_values.hpp"
#include "comm/transport/local/group_order.hpp"
#include "comm/transport/message_transport.hpp"
#include "comm/transport/occupancy.hpp"
#include "comm/transport/ticket_queue.hpp"
#include "kernels/exec/keep_for_ever.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow {

namespace {

using comm::Failure;
using comm::Fifo;
using comm::GroupOrder;
using comm::LocalRules;
using comm::Message;

// Ranks as threads meet in a rendezvous: start() posts where a message lies; the receiver's wait()
// copies it from there and counts it as taken; the sender's wait() returns once its messages are
// taken. The copy runs without the lock; a sender that leaves early first waits for a copy to end.
// A copy from or to device memory runs on the receiver's stream, or else the sender's, behind
// everything that was enqueued on both when they started.

/// Where the messages of one start lie, and the work that must finish before they are read.
struct Started {
  Exec place;
  kernels::StreamMark written;
};

struct Posted {
  std::span<const std::byte> message;
  std::uint64_t ticket;
  const Started* start;
};

struct Expected {
  std::span<std::byte> buffer;
  std::uint64_t* message_bytes;
  std::uint64_t ticket;
};

/// The messages from one rank to another. Entries leave when their sender has waited for them, not
/// when they are taken, so the queue's length does not depend on timing.
struct Channel {
  Fifo<Posted> posted;
  std::uint64_t taken = 0;  // number of the first message not taken yet
  bool copying = false;     // the receiver is reading message `taken`
};

/// State shared by the ranks of one group; `mutex` guards all of it.
struct Group {
  Group(int ranks, LocalRules local_rules)
      : size(static_cast<std::size_t>(ranks)),
        strict(local_rules == LocalRules::strict),
        order(size),
        channels(size * size),
        wake(size),
        gone(size) {}

  Channel& channel(int from, int to) {
    return channels[static_cast<std::size_t>(from) * size + static_cast<std::size_t>(to)];
  }
  std::condition_variable& wake_of(int rank) { return wake[static_cast<std::size_t>(rank)]; }
  void wake_all() {
    for (std::condition_variable& condition : wake) condition.notify_all();
  }

  Failure abort_failure() const { return comm::aborted_by(aborted_by, reason.text, reason.kind); }

  bool fits(std::size_t message_bytes, std::size_t buffer_bytes) const {
    return strict ? message_bytes == buffer_bytes : message_bytes <= buffer_bytes;
  }
  Failure misfit(std::size_t message_bytes, int from, std::size_t buffer_bytes) const {
    return {"a message of " + std::to_string(message_bytes) + " bytes from rank " +
                std::to_string(from) +
                (strict ? " meets a receipt of exactly " : " is longer than its buffer of ") +
                std::to_string(buffer_bytes),
            FailureKind::usage};
  }
  /// Records for all ranks that `rank` is the first to fail, and why, unless there is an earlier
  /// one.
  void abort(int rank, std::string_view why, FailureKind kind) noexcept {
    if (aborted_by >= 0) return;
    aborted_by = rank;
    reason.kind = kind;
    try {
      reason.text = why;
    } catch (...) {
      // If there is no memory for the text, the abort stands and names only the rank.
    }
  }
  /// The group of their next duplicate, for each rank once.
  std::shared_ptr<Group> join_duplicate() {
    const std::lock_guard lock(mutex);
    if (joined == 0)
      duplicate = std::make_shared<Group>(static_cast<int>(size),
                                          strict ? LocalRules::strict : LocalRules::loose);
    if (++joined < size) return duplicate;
    joined = 0;
    return std::move(duplicate);
  }
  bool may_move(int rank, std::uint64_t ticket) const {
    return !strict || order.reached(static_cast<std::size_t>(rank), ticket);
  }
  /// A message of a rank's ticket has been copied.
  void finish_message(int rank, std::uint64_t ticket) {
    if (strict && order.finish_message(static_cast<std::size_t>(rank), ticket)) wake_all();
  }

  std::size_t size;
  bool strict;
  std::mutex mutex;
  GroupOrder order;  // for strict ranks
  std::vector<Channel> channels;
  std::vector<std::condition_variable> wake;  // one per rank
  std::vector<char> gone;                     // ranks that failed or were destroyed
  std::shared_ptr<Group> duplicate;           // while some ranks have joined it
  std::size_t joined = 0;
  int aborted_by = -1;
  Failure reason;  // why it was aborted
};

class LocalTransport final : public comm::MessageTransport {
 public:
  LocalTransport(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank), expected_(group_->size) {}
  ~LocalTransport() override {
    if (failure_.forked()) {  // ranks that are not here may hold the mutex and wait at conditions
      kernels::keep_for_ever(new (std::nothrow) auto(std::move(group_)));
      return;
    }
    std::unique_lock lock(group_->mutex);
    leave(lock);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->size); }
  int node() const override { return 0; }
  bool allows_threads() const override { return true; }
  bool sizes_travel() const override { return !group_->strict; }
  bool takes(Place) const override { return true; }

  Ticket start(const Exec& exec) override;
  void wait(Ticket ticket, Deadline deadline) override;
  bool test(Ticket ticket, Deadline deadline) override;
  void progress() override;
  void abort(std::string_view reason, FailureKind kind) noexcept override;
  std::unique_ptr<Transport> duplicate(Deadline deadline) override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  void enqueue(const Message& message) override;
  void take_messages(int from, Lock& lock);
  void copy(const Posted& posted, const Expected& place);
  int find_awaited(std::uint64_t ticket, Lock& lock);
  bool look(Ticket ticket, Deadline deadline, Lock& lock);
  void leave(Lock& lock) noexcept;
  [[noreturn]] void fail(Lock& lock, const Failure& why);
  Fifo<Expected>& expected(int peer) { return expected_[static_cast<std::size_t>(peer)].queue; }

  struct PeerReceipts {
    Fifo<Expected> queue;
    std::uint64_t filled = 0;  // number of the first unfilled entry
  };

  std::shared_ptr<Group> group_;
  int rank_;
  std::vector<PeerReceipts> expected_;  // by peer
  std::vector<Message> outgoing_;       // since the last start
  std::uint64_t enqueued_ = 0;          // since the last start, sent and received
  comm::TicketQueue<Started*> starts_;
  std::vector<std::unique_ptr<Started>> made_;
  std::vector<Started*> idle_;  // those not in use
  bool copied_ = false;         // the lock was released for a copy since the last look
  comm::FailureLatch failure_;
};

void LocalTransport::enqueue(const Message& message) {
  failure_.expect_usable();
  if (message.is_send)
    outgoing_.push_back(message);
  else
    expected(message.peer)
        .push({{message.data, message.bytes}, message.message_bytes, starts_.last() + 1});
  ++enqueued_;
}

Ticket LocalTransport::start(const Exec& exec) {
  failure_.expect_usable();
  if (idle_.empty()) {
    made_.push_back(std::make_unique<Started>());
    idle_.reserve(made_.size());
    idle_.push_back(made_.back().get());
  }
  Started* const start = idle_.back();
  idle_.pop_back();
  const Ticket ticket = starts_.push(start);
  start->place = {.place = exec.place, .stream = exec.stream};
  if (exec.place == Place::cuda && !outgoing_.empty()) start->written.set(exec);
  const std::uint64_t messages = std::exchange(enqueued_, 0);
  if (outgoing_.empty() && !group_->strict) return ticket;
  const Lock lock(group_->mutex);
  if (group_->strict) group_->order.start(static_cast<std::size_t>(rank_), messages);
  for (const Message& message : outgoing_) {
    group_->channel(rank_, message.peer)
        .posted.push({{message.data, message.bytes}, ticket.number, start});
    group_->wake_of(message.peer).notify_all();
  }
  outgoing_.clear();
  return ticket;
}

// Copies every message from `from` that has been posted, has a started receipt, and may move.
void LocalTransport::take_messages(int from, Lock& lock) {
  Channel& channel = group_->channel(from, rank_);
  PeerReceipts& incoming = expected_[static_cast<std::size_t>(from)];
  while (channel.taken != channel.posted.end() && incoming.filled != incoming.queue.end() &&
         incoming.queue[incoming.filled].ticket <= starts_.last()) {
    const Posted posted = channel.posted[channel.taken];
    const auto& [message, sent_with, start] = posted;
    const Expected& place = incoming.queue[incoming.filled];
    if (!group_->may_move(from, sent_with) || !group_->may_move(rank_, place.ticket)) return;
    if (!group_->fits(message.size(), place.buffer.size())) {
      const Failure why = group_->misfit(message.size(), from, place.buffer.size());
      group_->abort(rank_, why.text, why.kind);
      fail(lock, why);
    }
    channel.copying = true;
    lock.unlock();
    std::string error;
    try {
      copy(posted, place);
    } catch (const std::exception& thrown) {  // thrown by the device
      error = thrown.what();
    }
    lock.lock();
    copied_ = true;
    channel.copying = false;
    if (!error.empty()) fail(lock, {error});
    ++channel.taken;
    ++incoming.filled;
    if (place.message_bytes != nullptr) *place.message_bytes = message.size();
    group_->finish_message(from, sent_with);
    group_->finish_message(rank_, place.ticket);
    group_->wake_of(from).notify_all();
  }
}

void LocalTransport::copy(const Posted& posted, const Expected& place) {
  const std::span<const std::byte> message = posted.message;
  if (message.empty()) return;
  const Exec& mine = starts_[place.ticket]->place;
  const Exec& theirs = posted.start->place;
  const Exec& exec = mine.place == Place::cuda ? mine : theirs;
  if (exec.place != Place::cuda) {
    std::memcpy(place.buffer.data(), message.data(), message.size());
    return;
  }
  if (theirs.place == Place::cuda) posted.start->written.make_wait(exec);
  kernels::read(exec, place.buffer.first(message.size()), message);
}

// Moves what can be moved and drops what is done up to `ticket`. Returns a peer for which this
// ticket still waits, or -1.
int LocalTransport::find_awaited(std::uint64_t ticket, Lock& lock) {
  int awaited = -1;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    take_messages(peer, lock);
    PeerReceipts& incoming = expected_[static_cast<std::size_t>(peer)];
    while (incoming.queue.begin() != incoming.filled && incoming.queue.front().ticket <= ticket)
      incoming.queue.pop();
    Channel& channel = group_->channel(rank_, peer);
    while (channel.posted.begin() != channel.taken && channel.posted.front().ticket <= ticket)
      channel.posted.pop();
    const bool receives = !incoming.queue.empty() && incoming.queue.front().ticket <= ticket;
    const bool sends = !channel.posted.empty() && channel.posted.front().ticket <= ticket;
    if (!receives && !sends) continue;
    if (group_->gone[static_cast<std::size_t>(peer)] != 0 && !channel.copying)
      fail(lock, group_->aborted_by >= 0 ? group_->abort_failure()
                                         : Failure{"rank " + std::to_string(peer) + " is gone"});
    awaited = peer;
  }
  return awaited;
}

// Whether a ticket is done. If not, nothing has changed since it looked.
bool LocalTransport::look(Ticket ticket, Deadline deadline, Lock& lock) {
  starts_.expect_started(ticket);
  int awaited = -1;
  do {
    if (group_->aborted_by >= 0) fail(lock, group_->abort_failure());
    copied_ = false;
    awaited = find_awaited(ticket.number, lock);
    if (awaited < 0) {
      if (group_->strict) group_->order.forget(static_cast<std::size_t>(rank_), ticket.number);
      return starts_.retire(ticket.number, [this](Started* start) {
        idle_.push_back(start);
        return true;
      });
    }
  } while (copied_);  // others may have moved, and notified, during the copy
  if (deadline.passed())
    fail(lock, comm::missed_deadline("while it waited for rank " + std::to_string(awaited)));
  return false;
}

bool LocalTransport::test(Ticket ticket, Deadline deadline) {
  failure_.expect_usable();
  Lock lock(group_->mutex);
  return look(ticket, deadline, lock);
}

// Messages move in waits; progress only learns of an abort.
void LocalTransport::progress() {
  if (failure_.failed() || failure_.forked()) return;
  Lock lock(group_->mutex);
  if (group_->aborted_by >= 0) fail(lock, group_->abort_failure());
}

void LocalTransport::wait(Ticket ticket, Deadline deadline) {
  failure_.expect_usable();
  Lock lock(group_->mutex);
  while (!look(ticket, deadline, lock)) {
    if (deadline.at() == Deadline::never().at())
      group_->wake_of(rank_).wait(lock);
    else
      group_->wake_of(rank_).wait_until(lock, deadline.at());
  }
}

void LocalTransport::abort(std::string_view reason, FailureKind kind) noexcept {
  if (failure_.forked()) return;
  Lock lock(group_->mutex);
  if (group_->aborted_by < 0) {
    group_->abort(rank_, reason, kind);
    failure_.keep(comm::aborted_here(reason, kind));
  }
  leave(lock);  // the caller may then write to its send buffers
}

// The new group is there for a rank to leave it before the ranks wait for each other here: if one
// of them throws, its peers in the new group learn that it is gone.
std::unique_ptr<Transport> LocalTransport::duplicate(Deadline deadline) {
  failure_.expect_usable();
  const comm::Quiet quiet(*this);
  return comm::abort_on_error(*this, [&] {
    auto made = std::make_unique<LocalTransport>(group_->join_duplicate(), rank_);
    (void)comm::gather_values(*this, std::byte{}, deadline);
    return made;
  });
}

// Withdraws messages that were posted and not taken, and notifies the others that this rank sends
// nothing more.
void LocalTransport::leave(Lock& lock) noexcept {
  for (int peer = 0; peer < size(); ++peer) {
    Channel& channel = group_->channel(rank_, peer);
    group_->wake_of(rank_).wait(lock, [&] { return !channel.copying; });
    channel.posted.clear();
    channel.taken = channel.posted.end();
  }
  group_->gone[static_cast<std::size_t>(rank_)] = 1;
  group_->wake_all();
}

void LocalTransport::fail(Lock& lock, const Failure& why) {
  failure_.keep(comm::of_rank(rank_, why));
  leave(lock);
  failure_.fail();
}

}  // namespace

std::vector<std::unique_ptr<Transport>> local_transports(int size) {
  return comm::local_transports(size, LocalRules::loose);
}

std::vector<std::unique_ptr<Transport>> comm::local_transports(int size, LocalRules rules) {
  constexpr int kMost = 1024;  // a lane for each two of them
  WINNOW_EXPECTS(size >= 1 && size <= kMost, "local_transports of size " + std::to_string(size) +
                                                 ": must be from 1 to " + std::to_string(kMost));
  const auto group = std::make_shared<Group>(size, rules);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank)
    transports.push_back(std::make_unique<LocalTransport>(group, rank));
  return transports;
}

}  // namespace winnow
