// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/transport.hpp>

#include "comm/transport/expect.hpp"
#include "comm/transport/growing.hpp"
#include "comm/transport/message.hpp"

namespace winnow::comm {

/// A transport that keeps the arguments of send and recv until start().
class MessageTransport : public Transport {
 public:
  void send(std::span<const std::byte> message, int peer) final {
    take(Message::sent(message, peer));
  }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) final {
    take(Message::received(buffer, peer, message_bytes));
  }

 protected:
  /// Checks a message, keeps it and counts its bytes.
  void take(const Message& message) {
    expect_peer(message.peer, rank(), size());
    expect_memory(std::span<const std::byte>(message.data, message.bytes));
    enqueue(message);
    if (message.is_send) bytes_sent_ += message.bytes;
  }
  /// Keeps a message, or throws if the transport is unusable.
  virtual void enqueue(const Message& message) = 0;
};

/// A MessageTransport of messages that can grow.
class GrowingTransport : public MessageTransport, public GrowingMessages {
 public:
  void send_growing(std::span<const std::byte> message, int peer,
                    const std::uint64_t* written) final {
    take(Message::sent(message, peer, written));
  }
  void recv_growing(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes,
                    std::uint64_t* arrived) final {
    take(Message::received(buffer, peer, message_bytes, arrived));
  }
};

}  // namespace winnow::comm
