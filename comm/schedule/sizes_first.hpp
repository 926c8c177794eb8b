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

/// Who knows the size of a message before it is written.
enum class MessageSize : std::uint8_t {
  fixed,  ///< everybody, from (count, k) and the codings: message and buffer have that size
  open,   ///< only its sender; the buffer fits the longest
};

/// A part's messages of open size, over a transport where sizes do not travel with messages. Two
/// starts replace one:
///   1. their sizes go, 8 bytes each, in message order, beside the messages of fixed size;
///   2. the messages follow in that order, into buffers of exactly their sizes.
/// Views of scratch that lives as long as the call. If messages lie in device memory, sizes travel
/// from and to words there (comm/transport/bridge/size_words.hpp), and follow() waits for
/// exec.stream.
class SizesFirst {
 public:
  /// Enqueues the size of a message to `peer`, and keeps the message.
  void send(Exchange& exchange, std::span<const std::byte> message, int peer);
  /// Likewise for a receipt; `bytes` becomes the size.
  void receive(Exchange& exchange, std::span<std::byte> buffer, int peer, std::uint64_t* bytes);

  /// Whether messages wait for their sizes. If start was called since, call follow() when it is
  /// done.
  bool pending() const { return first_ != nullptr; }
  /// Starts the messages. Throws CommError if one is longer than its buffer.
  Ticket follow(Exchange& exchange);

 private:
  struct Message {
    std::span<const std::byte> sent;  // or
    std::span<std::byte> buffer;
    std::uint64_t* bytes;  // of a received message; null for a sent one
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
