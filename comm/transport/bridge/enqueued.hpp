// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::comm {

/// The arguments of a Transport::send or recv, for a transport that hands the message on later.
struct Enqueued {
  std::byte* data;               ///< only read if is_send
  std::uint64_t bytes;           ///< to send, or the size of the receive buffer
  std::uint64_t* message_bytes;  ///< where to store the received size, or null
  int peer;
  bool is_send;
  std::size_t offset = 0;  ///< of its place in its start's block, if it is staged

  static Enqueued sent(std::span<const std::byte> message, int peer) {
    return {const_cast<std::byte*>(message.data()), message.size(), nullptr, peer, true};
  }
  static Enqueued received(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) {
    return {buffer.data(), buffer.size(), message_bytes, peer, false};
  }
};

}  // namespace winnow::comm
