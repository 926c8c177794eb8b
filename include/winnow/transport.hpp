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
#include <winnow/error.hpp>
#include <winnow/exec.hpp>
#include <winnow/reduce_op.hpp>
#include <winnow/workspace.hpp>

namespace winnow::comm {
class Occupancy;  // not public, hence outside the visibility pragma
}

#pragma GCC visibility push(default)

namespace winnow {

/// The time at which a wait gives up with CommError.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  /// From now; less than 0 is now. UsageError for what is no number.
  static Deadline after(std::chrono::duration<double> seconds) {
    constexpr std::chrono::duration<double> kNone{0}, kEver{1e9};  // more would not fit
    WINNOW_EXPECTS(seconds == seconds, "a deadline's seconds are not a number");
    if (seconds >= kEver) return never();
    if (seconds < kNone) return Deadline(Clock::now());
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds));
  }
  bool passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

/// Names one start().
struct Ticket {
  std::uint64_t number = 0;
};

/// Moves bytes between ranks. send and recv only enqueue; start starts everything enqueued; wait
/// returns when it is done. Messages between two ranks arrive in the order sent; there are no tags.
/// Leave buffers alone until wait returns, or after an error until the transport is destroyed. One
/// thread at a time may call a transport.
///
/// Since messages have no tags, a transport serves one AllReducer, or one mixed transport, at a
/// time; for a second one make a duplicate.
///
/// Throws CommError if a peer is gone, a deadline passes (FailureKind::deadline), a message is
/// longer than its receive buffer (FailureKind::usage), or after abort. The transport is then
/// unusable: every later call throws. In a child of a fork each call throws UsageError, but for
/// progress and abort, which do nothing.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Equal on ranks that share memory (one node), different between nodes.
  virtual int node() const = 0;
  /// Whether messages and the elements of collectives may lie in the memory of `place`: the host's
  /// (Place::host) or a device's. All buffers of one start lie where its
  /// Exec::place says.
  virtual bool takes(Place place) const { return place != Place::cuda; }

  /// Enqueues one message to `peer`, another rank. 0 bytes are a message too.
  virtual void send(std::span<const std::byte> message, int peer) = 0;
  /// Enqueues the receipt of the next message from `peer`, which may fill `buffer` at most. When
  /// wait has returned, `message_bytes`, if not null, holds its true size.
  virtual void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) = 0;
  /// Enqueues a message of `message_bytes` from every rank to every other. `all` has a slot of
  /// equal size for each rank, in rank order, with its message in front; this rank's is there
  /// already. As in recv, received[peer] becomes a message's true size. All ranks call it, with
  /// equal sizes, in the same order among their messages. The default body sends and receives; a
  /// transport that has one call for it, as NCCL has, may send slots as a whole.
  virtual void enqueue_all_gather(std::span<std::byte> all, std::size_t message_bytes,
                                  std::span<std::uint64_t> received);
  /// Starts everything enqueued since the last start.
  virtual Ticket start(const Exec& exec) = 0;
  /// Returns when this ticket and earlier ones are done.
  virtual void wait(Ticket ticket, Deadline deadline) = 0;
  /// Polls once: whether this ticket and earlier ones are done. Makes progress, and throws as wait
  /// does. The default body waits, which is right for a transport that stands alone; one that is
  /// part of another should not block here.
  virtual bool test(Ticket ticket, Deadline deadline) {
    wait(ticket, deadline);
    return true;
  }
  /// If messages are work on the stream given to start, as NCCL's are: returns when this ticket and
  /// earlier ones are enqueued there, so work enqueued later runs after them; a later call reports
  /// failures. Other transports wait.
  virtual void wait_on_stream(Ticket ticket, Deadline deadline) { wait(ticket, deadline); }
  /// Whether a CUDA graph can capture start and wait_on_stream, once the same messages have gone
  /// before.
  virtual bool captures() const { return false; }
  /// Makes progress without waiting, for transports that move only inside their calls; ranks call
  /// it now and then while they compute. May throw as wait does.
  virtual void progress() {}
  /// Makes this transport unusable and wakes peers that wait on it with a CommError of this kind
  /// naming `reason`. Never throws and never blocks. If captures() is true, any thread may call it
  /// during another thread's call, which may be waiting for space in a stream. Overriders repeat
  /// the signature without the default. Where a transport cannot tell peers the kind, they see
  /// `environment`.
  virtual void abort(std::string_view reason,
                     FailureKind kind = FailureKind::environment) noexcept = 0;
  /// Whether the receiver learns a message's size from the transport. If false, a message must fill
  /// its buffer exactly, so schedules exchange sizes first, unless (count, k) fixes them; and one
  /// start may wait for everything that this rank started before.
  virtual bool sizes_travel() const { return true; }
  /// Whether Winnow's own thread may call this transport while the program uses the library below
  /// it (MPI_THREAD_MULTIPLE); still one thread at a time.
  virtual bool allows_threads() const { return false; }

  /// Registers memory in which messages will lie, so that they need fewer copies; empty if this
  /// transport registers none, on all ranks alike. Both ends of a message, and all ranks' buffers
  /// of a collective, then lie in registered memory, or none of them. It and its results end before
  /// this transport. Ending a result may wait some seconds for messages, and aborts the transport
  /// if they do not finish. UsageError for memory that the transport does not take; if registering
  /// fails, the next start or wait throws CommError.
  virtual MemoryRegistrar registrar() { return {}; }

  /// A transport over `ranks` of this one, in that order; the list must include this rank. All of
  /// them call it, and over NCCL all ranks at once, each with its own group. The parent must
  /// outlive it.
  virtual std::unique_ptr<Transport> subset(std::span<const int> ranks);
  /// Another transport of the same ranks, as MPI_Comm_dup makes one: with its own order of
  /// messages, tickets, failures and thread, and no need of this one once it is made. Collective,
  /// and one of the calls of the AllReducer that this one serves: it first finishes those in
  /// flight. Throws CommError if ranks have not come when the deadline passes, and this one is then
  /// unusable, too. The default body throws UsageError: subsets, adapters and simulated ranks have
  /// no duplicates.
  virtual std::unique_ptr<Transport> duplicate(Deadline deadline);

  // Collectives. The result is ready when they return; if messages are work on a stream, it is
  // ready for what is enqueued there next: to wait for it, wait for one more start. The default
  // bodies abort the transport before they throw CommError, so their buffers may then end.

  /// Reduces `elements` over all ranks, in place, with the same bits on every rank. UsageError for
  /// 16-bit elements and averages: the caller widens, and divides the sum. The default body is a
  /// ring (Patarasuk and Yuan, 2009): chunk c is summed in the order c+1, c+2, ..., c (mod P), so
  /// ((g[c+1] + g[c+2]) + ...) + g[c]. Few elements go to all ranks in one step (see
  /// reduces_in_one_step), and are summed in the same order. Needs exec.workspace.
  virtual void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                          Deadline deadline);
  /// The reduce-scatter half of the ring: afterwards this rank's chunk (see ring_chunk) holds the
  /// sum over ranks; the rest of `elements` is undefined. Needs exec.workspace.
  virtual void reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline);
  /// Concatenates equal-sized `mine` of all ranks, in rank order, into `all`.
  virtual void all_gather(const Exec& exec, std::span<const std::byte> mine,
                          std::span<std::byte> all, Deadline deadline);
  /// Whether all_reduce is a native collective that ignores its deadline.
  virtual bool native_all_reduce() const { return false; }

  /// Payload bytes this rank has sent through send() and enqueue_all_gather() so far.
  std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

 protected:
  Transport();
  /// For a transport whose messages go as those of `carrier`, in one order, as a subset's do: one
  /// of the two serves one AllReducer at a time.
  void sends_over(const Transport& carrier) { occupancy_ = carrier.occupancy_; }
  std::uint64_t bytes_sent_ = 0;

 private:
  friend class comm::Occupancy;
  std::shared_ptr<comm::Occupancy> occupancy_;
  std::vector<std::uint64_t> gathered_;  // bytes, by rank
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

/// Whether Transport::all_reduce's default body sends all of so many elements of `unit` bytes to
/// every other rank at once, since 2 (P - 1) messages round the ring, one after the other, would
/// take longer than the bytes. Every rank then makes P - 1 additions for each chunk.
constexpr bool reduces_in_one_step(std::uint64_t count, std::size_t unit, int size) {
  constexpr std::uint64_t kMostBytes = 8192, kMostAdditions = 256;
  const auto p = static_cast<std::uint64_t>(size);
  return count <= kMostBytes && count * unit * (p - 1) <= kMostBytes &&
         (count < p ? count : p) * (p - 1) <= kMostAdditions;
}

/// Transports of `size` ranks that are threads of this process; element i is rank i's. They share
/// state and may be destroyed in any order. They take host messages and, if Winnow was built with
/// CUDA, device messages, also from one memory to the other.
std::vector<std::unique_ptr<Transport>> local_transports(int size);

}  // namespace winnow

#pragma GCC visibility pop
