// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/transport.hpp>

#include "comm/transport/bridge/size_words.hpp"

namespace winnow::comm {

struct Exchange;

/// What ranks know of the size of a message before it is written.
enum class MessageSize : std::uint8_t {
  fixed,  ///< all of it, by (count, k) and the codings: message and room have it
  open,   ///< its sender alone; the room is for the longest
};

/// The messages of open size that a part has on its way, over a transport where sizes do not travel
/// with messages. Two starts take the place of one:
///   1. their sizes go, 8 bytes each, in the order of the messages, beside those of fixed size;
///   2. the messages follow in that order, into rooms of just their sizes.
/// Views of scratch that lives as long as the call. Where messages lie in device memory, sizes
/// travel from and to words there (comm/transport/bridge/size_words.hpp), and following waits for
/// exec.stream.
class SizesFirst {
 public:
  /// Enqueues the size of a message to `peer`, and keeps the message.
  void send(Exchange& exchange, std::span<const std::byte> message, int peer);
  /// The same of a receipt; `bytes` becomes the size.
  void receive(Exchange& exchange, std::span<std::byte> room, int peer, std::uint64_t* bytes);

  /// Whether messages wait for their sizes: where start was called since, they are to follow when
  /// that is done.
  bool pending() const { return first_ != nullptr; }
  /// Starts the messages. Throws CommError where one is longer than its room.
  Ticket follow(Exchange& exchange);

 private:
  struct Message {
    std::span<const std::byte> sent;  // or
    std::span<std::byte> room;
    std::uint64_t* bytes;  // of what is received; null of what is sent
    int peer;
    SizeWord word = {};
    Message* next = nullptr;
  };
  const Message& add(Exchange& exchange, const Message& message);
  void fetch(Exchange& exchange);

  Message* first_ = nullptr;
  Message* last_ = nullptr;
};

}  // namespace winnow::comm
