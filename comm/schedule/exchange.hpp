// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>
#include <winnow/stats.hpp>
#include <winnow/transport.hpp>

#include "comm/schedule/sizes_first.hpp"
#include "compress/compressor.hpp"
#include "compress/message.hpp"
#include "compress/part.hpp"

namespace winnow::comm {

class Rails;
struct Shards;

/// A stretch of a residual and what it held before the call; nothing where it was zero.
struct SavedResidual {
  std::span<float> residual;
  std::span<const float> before;
};

/// One part of a bucket on its way through a schedule: what the schedule works with, and what it
/// leaves behind. All memory is views; scratch comes from exec.workspace and lives as long as the
/// call.
struct Exchange {
  Transport& world;
  const compress::Compressor& compressor;
  const Exec& exec;
  Deadline deadline;
  std::uint64_t ring;  ///< bytes from which on dense sums go by Winnow's ring
  float decay;
  float factor;  ///< of the sum; 1 where it is in it
  compress::Part& part;
  compress::Header header;    ///< of this call and part; kPoison set where the bucket is known bad
  kernels::RandomKey random;  ///< of this call, part and rank; part.partition.owners() stages of
                              ///< encode from its own on, then one of encode_sums
  Stats& stats;               ///< of the call; schedules add their times and bytes
  const Rails* rails = nullptr;  ///< of world; null where each of its ranks is on another node
  Shards* shards = nullptr;      ///< of the part, where its schedule has two levels
  SizesFirst sizes_first = {};   ///< its messages whose sizes are on their way
  /// Of a call in device memory whose host does not wait for what is found out: see
  /// Schedule::unseen.
  kernels::CallStatus* verdict = nullptr;
  bool undoable = false;  ///< a dense sum leaves the elements alone until it is written

  // What this rank took from its gradient, to put back: messages by owner, and what it sums itself.
  std::span<const std::span<std::byte>> own = {};
  compress::Owned owned = {};
  std::span<const compress::MessageView> opened = {};  // these messages, where they are opened
  // Or acc is in the residuals, but for what was taken out of them.
  bool in_residuals = false;
  std::span<const compress::Taken> taken = {};
  // Where the elements keep this rank's gradient to the end: what residuals were meanwhile changed.
  std::span<const SavedResidual> saved = {};

  // The outcome: messages to be added to the elements in their order; or sums, by owner; or the sum
  // itself.
  std::span<const compress::MessageView> messages = {};
  std::span<const compress::MessageView> sums = {};
  std::span<float> sum = {};
  bool in_place = false;  ///< a collective works, or has worked, on the elements themselves
  bool poisoned = false;  ///< some rank's gradient was not finite
};

/// Adds a message to `peer` of Exchange::world to the bytes that Stats counts.
void count_sent(Exchange& exchange, int peer, std::uint64_t bytes);

/// Of the messages of a kind that carry what the compressor of the call selects.
MessageSize message_size(const Exchange& exchange, compress::Header::Kind kind);

/// Enqueues a message to `peer` of Exchange::world, and counts it.
void send(Exchange& exchange, std::span<const std::byte> message, int peer, MessageSize size);
/// Enqueues the receipt of one; `bytes` becomes its size. Where that is open and sizes do not
/// travel, both become one more round, which Rounds goes through by itself.
void receive(Exchange& exchange, std::span<std::byte> room, int peer, std::uint64_t* bytes,
             MessageSize size);

/// A message for each rank of Exchange::world, or from each, or room for it.
using Messages = std::span<const std::span<std::byte>>;

/// Room for a message of bytes(rank) bytes for each rank.
template <class Bytes>
std::span<std::span<std::byte>> rooms(const Exchange& exchange, const Bytes& bytes) {
  const auto ranks = static_cast<std::uint32_t>(exchange.world.size());
  const auto messages = exchange.exec.workspace->take<std::span<std::byte>>(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    messages[rank] = exchange.compressor.room(exchange.exec, bytes(rank));
  }
  return messages;
}

/// Compressor::encode: rooms become this rank's messages of `kind` by owner, and Exchange::own.
/// Returns whether every acc was finite. Where `opened` is not null it and Exchange::verdict are
/// told of the one message, by Outbox::opened.
bool encode_gradient(Exchange& exchange, compress::Header::Kind kind,
                     std::span<std::span<std::byte>> messages,
                     compress::MessageView* opened = nullptr);

/// Enqueues out[peer] to each peer and the receipt of in[peer]; received[peer] becomes the bytes of
/// what arrived, received[self] those of in[self]. Rank r begins with r + 1 and goes up, so that no
/// rank is everybody's first target.
void enqueue_all_to_all(Exchange& exchange, Messages out, Messages in,
                        std::span<std::uint64_t> received, MessageSize size);

/// The same of one message for all: messages[self].
void enqueue_all_gather(Exchange& exchange, Messages messages, std::span<std::uint64_t> received,
                        MessageSize size);

}  // namespace winnow::comm
