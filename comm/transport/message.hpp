// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::comm {

/// The arguments of a send or a recv, growing or not.
struct Message {
  std::byte* data;               ///< only read if is_send
  std::uint64_t bytes;           ///< to send, or the size of the receive buffer
  std::uint64_t* message_bytes;  ///< where to store the received size, or null
  int peer;
  bool is_send;
  const std::uint64_t* written = nullptr;  ///< bytes ready to send, or null: all
  std::uint64_t* arrived = nullptr;        ///< where to report received bytes, or null

  static Message sent(std::span<const std::byte> message, int peer,
                      const std::uint64_t* written = nullptr) {
    return {.data = const_cast<std::byte*>(message.data()),
            .bytes = message.size(),
            .message_bytes = nullptr,
            .peer = peer,
            .is_send = true,
            .written = written};
  }
  static Message received(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes,
                          std::uint64_t* arrived = nullptr) {
    return {.data = buffer.data(),
            .bytes = buffer.size(),
            .message_bytes = message_bytes,
            .peer = peer,
            .is_send = false,
            .arrived = arrived};
  }
};

}  // namespace winnow::comm
