// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/transport/one_of_many.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/bits_digest.hpp"

namespace winnow::tests {

/// Digests the messages that a rank sends, from watch() on. Claims that the rank is on a node of
/// the test's choice.
class SentMessages final : public ForwardingTransport, public comm::OneOfMany {
 public:
  SentMessages(std::shared_ptr<Transport> inner, int node)
      : ForwardingTransport(std::move(inner)), node_(node) {}

  int node() const override { return node_; }

  void send(std::span<const std::byte> message, int peer) override {
    ForwardingTransport::send(message, peer);
    if (watching_) enqueued_.push_back({message, peer});
  }
  // A message's bytes exist when it is started, not when it is enqueued.
  Ticket start(const Exec& exec) override {
    for (const Enqueued& sent : enqueued_) {
      bytes_.resize(sent.message.size());
      read_back(exec, bytes_, sent.message);
      leave_out_digests(bytes_);
      BitsDigest message;
      message.add(std::span<const std::byte>(bytes_));
      Peer& peer = peers_[sent.peer];
      peer.messages += scatter(message.value());
      peer.order.add(message.value());
    }
    enqueued_.clear();
    return ForwardingTransport::start(exec);
  }

  void watch() { watching_ = true; }

  /// Digest of all messages and their peers in any order: a sum, so a message that is sent twice
  /// counts.
  std::uint64_t messages() const {
    BitsDigest all;
    for (const auto& [number, peer] : peers_) {
      all.add(static_cast<std::uint64_t>(number));
      all.add(peer.messages);
    }
    return all.value();
  }
  /// Digest of the messages in the order in which each peer gets them.
  std::uint64_t order() const {
    BitsDigest all;
    for (const auto& [number, peer] : peers_) {
      all.add(static_cast<std::uint64_t>(number));
      all.add(peer.order.value());
    }
    return all.value();
  }

 private:
  struct Enqueued {
    std::span<const std::byte> message;
    int peer;
  };
  struct Peer {
    std::uint64_t messages = 0;
    BitsDigest order;
  };

  /// Clears the header's digests of options and bucket, and takes their terms out of its checksum:
  /// docs/message_format.md leaves their computation open, so a new option may change them.
  static void leave_out_digests(std::span<std::byte> message) {
    constexpr std::uint32_t kMagic = 0x574e4e57;
    std::array<std::uint32_t, 16> words{};
    if (message.size() < sizeof(words)) return;
    std::memcpy(words.data(), message.data(), sizeof(words));
    if (words[0] != kMagic) return;
    std::uint64_t checksum = 0;
    std::memcpy(&checksum, &words[14], sizeof(checksum));
    for (std::size_t i = 2; i < 6; ++i) {
      checksum -= std::uint64_t{words[i]} * (2 * i + 1);
      words[i] = 0;
    }
    std::memcpy(&words[14], &checksum, sizeof(checksum));
    std::memcpy(message.data(), words.data(), sizeof(words));
  }

  int node_;
  bool watching_ = false;
  std::vector<Enqueued> enqueued_;  // since the last start
  std::vector<std::byte> bytes_;
  std::map<int, Peer> peers_;
};

}  // namespace winnow::tests
