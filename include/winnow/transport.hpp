// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>
#include <winnow/reduce_op.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// A point in time at which a wait gives up with CommError.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(std::chrono::duration<double> seconds) {
    constexpr std::chrono::duration<double> kEver{1e9};  // more would not fit a time_point
    if (!(seconds < kEver)) return never();
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds));
  }
  bool passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

/// Names what one start() set going.
struct Ticket {
  std::uint64_t number = 0;
};

/// Moves bytes between ranks. send and recv only enqueue; start sets all that was enqueued going;
/// wait returns when it is done. Messages between two ranks arrive in the order sent; there are no
/// tags. A peer's buffer is left alone until wait returns; after an error, until the transport is
/// destroyed. One thread at a time may call a transport.
///
/// Errors: CommError where a peer is gone, a deadline passes, a message is longer than the buffer
/// that it meets, or after abort; the transport is then unusable and every later call throws.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// A number that is equal on ranks that share memory (one node) and differs between nodes.
  virtual int node() const = 0;
  /// Whether messages, and the elements of collectives, may lie in the memory of `place`: the
  /// host's (Place::cpu and Place::reference) or a device's. Those of one start lie where its
  /// Exec::place says.
  virtual bool takes(Place place) const { return place != Place::cuda; }

  /// Enqueues one message (0 bytes are a message too) to `peer`, which is not this rank.
  virtual void send(std::span<const std::byte> message, int peer) = 0;
  /// Enqueues the receipt of the next message of `peer` into `buffer`, the longest one allowed;
  /// `message_bytes`, if not null, holds its true size once wait has returned.
  virtual void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) = 0;
  /// Sets everything enqueued since the last start going.
  virtual Ticket start(const Exec& exec) = 0;
  /// Returns when everything of this ticket and of earlier ones is done.
  virtual void wait(Ticket ticket, Deadline deadline) = 0;
  /// One turn of wait: whether everything of this ticket and of earlier ones is done. Moves on what
  /// was started, and throws as wait does. The default body waits, which is true of a transport
  /// that stands alone; one that is part of another should not block here.
  virtual bool test(Ticket ticket, Deadline deadline) {
    wait(ticket, deadline);
    return true;
  }
  /// Where messages are work of the streams that start was given, as NCCL's are: returns when all
  /// of this ticket and of earlier ones is enqueued there, so that what is enqueued next comes
  /// after it; what fails then shows in a later call. Others wait.
  virtual void wait_on_stream(Ticket ticket, Deadline deadline) { wait(ticket, deadline); }
  /// Whether start and wait_on_stream can be captured into a CUDA graph, once the same messages
  /// have gone before.
  virtual bool captures() const { return false; }
  /// Moves on what was started, without waiting: called now and then while a rank computes, for
  /// transports that move only inside their calls. May throw, as wait does, what it meets.
  virtual void progress() {}
  /// Makes this transport unusable and wakes peers that wait on it with a CommError naming
  /// `reason`. Never throws and never blocks. Where captures() is true any thread may call it,
  /// whatever another one calls meanwhile: that may be waiting for room in a stream.
  virtual void abort(std::string_view reason) noexcept = 0;
  /// Whether a receiver learns the size of a message from the transport. Where false, a message
  /// must have that of its buffer, so schedules exchange sizes first, unless (count, k) fixes them;
  /// and what one start sets going may wait for all that this rank started before.
  virtual bool sizes_travel() const { return true; }
  /// Whether another thread may call this transport while the program's own goes on using what
  /// lies below it (MPI_THREAD_MULTIPLE); still one thread at a time.
  virtual bool allows_threads() const { return false; }

  /// The ranks `ranks` of this transport as a group of their own, in that order; must name this
  /// rank; called by all of them, and over NCCL by all ranks at once, each with its own group. The
  /// parent must outlive it.
  virtual std::unique_ptr<Transport> subset(std::span<const int> ranks);

  // Collectives. Their results are there at their return; over a transport whose messages are work
  // of a stream, for what is enqueued there next: to wait for it, wait for one more start.

  /// Reduces `elements` over all ranks, in place, the same bits on every rank. Not 16-bit ones, and
  /// no average: callers widen, and divide the sum (UsageError). The default body is a ring
  /// (Patarasuk and Yuan, 2009): chunk c is summed in the order c+1, c+2, ..., c (mod P), so
  /// ((g[c+1] + g[c+2]) + ...) + g[c]. exec.workspace required.
  virtual void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                          Deadline deadline);
  /// The reduce-scatter half of the ring: afterwards this rank's chunk (see ring_chunk) holds the
  /// sum over ranks; the rest of `elements` is undefined. exec.workspace required.
  virtual void reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline);
  /// Concatenates equal-sized `mine` of all ranks, in rank order, into `all`.
  virtual void all_gather(const Exec& exec, std::span<const std::byte> mine,
                          std::span<std::byte> all, Deadline deadline);
  /// Whether all_reduce is a native collective, which blocks without regard to its deadline.
  virtual bool native_all_reduce() const { return false; }

  /// Payload bytes this rank has sent through send() so far.
  std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

 protected:
  Transport() = default;
  std::uint64_t bytes_sent_ = 0;
};

/// Elements [begin, end) of the chunk that rank `rank` of `size` owns in the ring.
struct Chunk {
  std::uint64_t begin, end;
};
constexpr Chunk ring_chunk(std::uint64_t count, int rank, int size) {
  const auto p = static_cast<std::uint64_t>(size), r = static_cast<std::uint64_t>(rank);
  const std::uint64_t whole = count / p, rest = count % p;
  const std::uint64_t begin = r * whole + (r < rest ? r : rest);
  return {begin, begin + whole + (r < rest ? 1 : 0)};
}

/// Transports of `size` ranks that are threads of this process: element i is rank i's. They share
/// their state and may be destroyed in any order. They take messages of the host and, where Winnow
/// was built with CUDA, of devices, also from one to the other.
std::vector<std::unique_ptr<Transport>> local_transports(int size);

}  // namespace winnow

#pragma GCC visibility pop
