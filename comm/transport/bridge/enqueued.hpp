// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>
#include <winnow/transport.hpp>

#include "comm/transport/expect.hpp"
#include "comm/transport/failure_latch.hpp"

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

/// A transport that keeps messages until start(), for others to carry.
class EnqueuingTransport : public Transport {
 public:
  void send(std::span<const std::byte> message, int peer) override {
    expect_peer(peer, rank(), size());
    expect_memory(message);
    failure_->expect_usable();
    enqueued_.push_back(Enqueued::sent(message, peer));
    bytes_sent_ += message.size();
  }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override {
    expect_peer(peer, rank(), size());
    expect_memory(buffer);
    failure_->expect_usable();
    enqueued_.push_back(Enqueued::received(buffer, peer, message_bytes));
  }

 protected:
  explicit EnqueuingTransport(
      std::shared_ptr<FailureLatch> failure = std::make_shared<FailureLatch>())
      : failure_(std::move(failure)) {}

  std::vector<Enqueued> enqueued_;         // since the last start
  std::shared_ptr<FailureLatch> failure_;  // a transport may share it with its subsets
};

}  // namespace winnow::comm
