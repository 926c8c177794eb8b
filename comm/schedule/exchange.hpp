// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <winnow/exec.hpp>
#include <winnow/stats.hpp>
#include <winnow/transport.hpp>

#include "comm/schedule/counts.hpp"
#include "compress/compressor.hpp"
#include "compress/message.hpp"
#include "compress/part.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

class Rails;
struct Shards;

/// The ranks of an exchange, and how long it may take.
struct Wire {
  Transport& world;
  int rank = world.rank(), ranks = world.size();  ///< in `world`
  Deadline deadline;
  Stats& stats;                     ///< of the call; schedules add their times and bytes
  std::span<const int> names = {};  ///< of the ranks of `world`, in errors; empty: their numbers

  /// The number by which errors name a rank of `world`.
  int name_of(std::size_t peer) const {
    return names.empty() ? static_cast<int>(peer) : names[peer];
  }
};

/// The ranks and shards of a part that travels in two levels.
struct Levels {
  const Rails* rails =
      nullptr;               ///< of Wire::world; null if each of its ranks is on a node of its own
  Shards* shards = nullptr;  ///< of the part, if its schedule has two levels
};

/// The factors of residuals and sums.
struct Scaling {
  float decay;         ///< of the residual
  float factor;        ///< of the sum; 1 if the sum includes it
  float averaged = 1;  ///< the ranks of an average: what a mean leaves is so often left of the sum
};

/// The settings that all parts of a call share.
struct Course {
  std::uint64_t ring;  ///< dense sums of this many bytes and more use Winnow's ring
  /// Set for a call in device memory that goes by its status: see Schedule::waits.
  kernels::CallStatus* status = nullptr;
  /// For buckets in device memory: CallStatus::too_large of the call, also if the host waits in it.
  std::uint32_t* too_large = nullptr;
  bool one_by_one = false;   ///< parts and rails go one after the other, not overlapped
  bool undoable = false;     ///< a dense sum leaves the elements alone until it is written
  bool one_outcome = false;  ///< a sum of all ranks is to be one message, for it will travel on
};

// How to restore this rank's gradient if the call fails
// (comm/call/restore).

/// The elements keep the gradient.
struct Untouched {};
/// The elements keep the gradient, but residuals have changed meanwhile.
struct ResidualsChanged {
  /// A stretch of a residual and its content before the call; empty if that was zero.
  struct Stretch {
    std::span<float> residual;
    std::span<const float> before;
  };
  std::span<const Stretch> stretches;
};
/// A collective works, or has worked, on the elements themselves: the gradient is lost.
struct Overwritten {};
/// acc is in the residuals, except for what was taken out of them.
struct Accumulated {
  std::span<const compress::Taken> taken = {};
};
/// Elements were selected, and are in no message yet.
struct Selected {
  compress::Chosen chosen;
};
/// Messages by owner. Positions of this rank are in Exchange::owned.
struct Encoded {
  std::span<const std::span<std::byte>> messages;
};
/// Messages by owner, in the form that a decoder reads.
struct Decoded {
  std::span<const compress::MessageView> messages;
};
using Undo =
    std::variant<Untouched, ResidualsChanged, Overwritten, Accumulated, Selected, Encoded, Decoded>;

// The results of schedules.

struct Unfinished {};
/// Messages to add to the elements, in order.
struct Terms {
  std::span<const compress::MessageView> messages;
};
/// Messages by owner.
struct OwnerSums {
  std::span<const compress::MessageView> messages;
};
/// The sum by position, for Schedule::write.
struct WholeSum {
  std::span<float> sum;
  bool in_place = false;  ///< `sum` is the elements
};
/// Also the Union that the one message of Terms will be, once finalized: of an inner schedule.
using Outcome = std::variant<Unfinished, Terms, compress::Union, OwnerSums, WholeSum>;

struct Result {
  Outcome outcome = {};
  bool poisoned = false;  ///< some rank's gradient was not finite
  bool clipped = false;   ///< an element of 16 bits cannot hold its sum: the rest is to be kept
};

/// One part of a bucket on its way through a schedule. All memory is views; scratch comes from
/// exec.workspace and lives as long as the call.
struct Exchange {
  Wire wire;
  Levels levels = {};
  const compress::Compressor& compressor;
  const Exec& exec;
  Scaling scaling;
  Course course;
  compress::Part& part;
  compress::Header header;  ///< of this call and part; kPoison is set if the bucket is known to be
                            ///< bad
  kernels::RandomKey random;  ///< of this call, part and rank; stages: part.partition.owners() of
                              ///< encode, then one of encode_sums
  compress::Owned owned = {};
  Undo undo = {};
  Result result = {};
};

/// The messages that it ended with: Terms or OwnerSums.
std::span<const compress::MessageView> messages_of(const Exchange& exchange);
/// The WholeSum that it ended with.
std::span<float> sum_of(const Exchange& exchange);

/// Thrown by a schedule on every rank, before anything has changed, if some rank refuses the call.
struct Refused {
  std::string why;
};

/// Adds a message to `peer` of Wire::world, which is about to be sent, to the bytes of Stats.
/// `rails`: as in Levels.
void count_sent(const Wire& wire, const Rails* rails, int peer, std::uint64_t bytes);
inline void count_sent(const Exchange& exchange, int peer, std::uint64_t bytes) {
  count_sent(exchange.wire, exchange.levels.rails, peer, bytes);
}

/// Whether a gradient decides how long messages of this kind are, so that only their senders know.
bool has_open_size(const Exchange& exchange, compress::Header::Kind kind);
/// Whether ranks then exchange counts first, since sizes do not travel.
bool needs_counts(const Exchange& exchange, compress::Header::Kind kind);
/// The expectation of a message whose number of elements was exchanged before. `most`: its header,
/// with the most that it may carry.
compress::Expected expect_counted(const Exchange& exchange, const compress::Header& most,
                                  std::uint64_t elements);

/// Names the codings of a message in Stats::coding, if the gradient and not the plan decides them.
inline void name_codings(Exchange& exchange, const compress::Header& header) {
  if (exchange.compressor.variable_k()) {
    compress::name_codings(header, exchange.wire.stats.coding);
  }
}

/// Counts a message to `peer` of Wire::world, and enqueues it.
void send(Exchange& exchange, std::span<const std::byte> message, int peer);

/// One entry per rank of Wire::world: a message, or a receive buffer.
using Messages = std::span<const std::span<std::byte>>;

/// A buffer for a message.
inline std::span<std::byte> take_buffer(const Exchange& exchange, std::size_t bytes) {
  return kernels::scratch_of(exchange.exec).take<std::byte>(bytes);
}

/// Buffers that are taken as one. (NCCL is slow with memory that is not 16-byte aligned.)
using Buffers = kernels::Arrays<std::byte>;

/// A buffer of bytes(rank) bytes for each rank.
template <class Bytes>
std::span<std::span<std::byte>> take_buffers(const Exchange& exchange, const Bytes& bytes) {
  const auto ranks = static_cast<std::uint32_t>(exchange.wire.ranks);
  const auto messages = exchange.exec.workspace->take<std::span<std::byte>>(ranks);
  std::size_t room = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) room += Buffers::room(bytes(rank));
  Buffers buffers(kernels::scratch_of(exchange.exec), room);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) messages[rank] = buffers.next(bytes(rank));
  return messages;
}

/// A buffer of one size for the message of each rank, as Transport::enqueue_all_gather takes them.
struct Slots {
  std::span<std::byte> memory;
  std::size_t message_bytes;
  std::span<std::span<std::byte>> messages;  // by rank; views of the memory
};
Slots take_slots(const Exchange& exchange, std::size_t message_bytes);

/// The compressor's job for messages of `kind`. Random numbers begin at stage `stage` of the part.
compress::EncodeJob job_of(const Exchange& exchange, compress::Header::Kind kind,
                           std::uint32_t stage = 0);
/// Decodes messages. Returns whether one is poisoned, which a stream-ordered call writes to its
/// status instead.
bool decode(const Exchange& exchange, std::span<const compress::ReceivedMessage> incoming,
            std::span<compress::MessageView> views);

/// Compressor::encode: fills `messages` with this rank's messages of `kind` by owner, which become
/// Encoded, in a stream-ordered call Decoded.
void encode_gradient(Exchange& exchange, compress::Header::Kind kind,
                     std::span<std::span<std::byte>> messages);
/// Encode a gradient in two halves: Compressor::choose, which leaves Selected, and encode_chosen.
void choose_gradient(Exchange& exchange);
void encode_chosen(Exchange& exchange, compress::Header::Kind kind,
                   std::span<std::span<std::byte>> messages);

/// Enqueues out[peer] to each peer and the receipt of in[peer]. received[peer] becomes the bytes
/// that arrived, received[self] the size of in[self]. Rank r starts with peer r + 1 and goes up, so
/// that no rank is everybody's first target.
void enqueue_all_to_all(Exchange& exchange, Messages out, Messages in,
                        std::span<std::uint64_t> received);

/// Enqueues messages[self] to each peer, and receipts as enqueue_all_to_all does.
void enqueue_all_gather(Exchange& exchange, Messages messages, std::span<std::uint64_t> received);
/// Enqueues the exchange of messages of one size by the transport's own all-gather.
void enqueue_all_gather(Exchange& exchange, const Slots& slots, std::span<std::uint64_t> received);

/// The bytes of out[peer], for each peer, and what it says of in[peer].
Counts count_bytes(Exchange& exchange, Messages out, Messages in);
/// The bytes of messages[self], which goes to each peer, and what each says of its own.
Counts count_bytes(Exchange& exchange, Messages messages);
/// Cuts in[peer] to what will come.
void cut_to(const Exchange& exchange, const Counts& bytes, std::span<std::span<std::byte>> in);

}  // namespace winnow::comm
