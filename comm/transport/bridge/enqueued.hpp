// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::comm {

/// What Transport::send or recv was told of a message, for a transport that hands it on later.
struct Enqueued {
  std::byte* data;               ///< only read where is_send
  std::uint64_t bytes;           ///< to send; or room to receive
  std::uint64_t* message_bytes;  ///< where the size received goes, or null
  int peer;
  bool is_send;
  std::size_t offset = 0;  ///< of its place in the block of its start, where it is staged

  static Enqueued sent(std::span<const std::byte> message, int peer) {
    return {const_cast<std::byte*>(message.data()), message.size(), nullptr, peer, true};
  }
  static Enqueued received(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) {
    return {buffer.data(), buffer.size(), message_bytes, peer, false};
  }
};

}  // namespace winnow::comm
