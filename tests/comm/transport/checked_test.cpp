// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What checksum=all adds to each message: that no two flipped bits pass, be they in the message or
// in its checksum.
#include "comm/transport/bridge/checked.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

namespace winnow::comm {
namespace {

using Bytes = std::vector<std::byte>;

/// Rank 0 of 2, whose peer sends back each message as it came, but for some flipped bits: those
/// at these places of the bytes of a start, one message after the other.
class Echo final : public Transport {
 public:
  explicit Echo(std::vector<std::size_t> flips) : flips_(std::move(flips)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  int node() const override { return 0; }
  void send(std::span<const std::byte> message, int) override { sent_.push_back(message); }
  void recv(std::span<std::byte> buffer, int, std::uint64_t* bytes) override {
    receives_.push_back({buffer, bytes});
  }
  Ticket start(const Exec&) override { return {++started_}; }
  void wait(Ticket, Deadline) override {
    Bytes all;
    for (const auto message : sent_) all.insert(all.end(), message.begin(), message.end());
    for (const std::size_t bit : flips_) all[bit / 8] ^= std::byte{1} << (bit % 8);
    std::size_t at = 0;
    for (std::size_t i = 0; i < receives_.size(); at += sent_[i++].size()) {
      std::memcpy(receives_[i].buffer.data(), all.data() + at, sent_[i].size());
      if (receives_[i].bytes != nullptr) *receives_[i].bytes = sent_[i].size();
    }
    sent_.clear();
    receives_.clear();
  }
  void abort(std::string_view, FailureKind) noexcept override {}

 private:
  struct Receive {
    std::span<std::byte> buffer;
    std::uint64_t* bytes;
  };
  std::vector<std::size_t> flips_;
  std::vector<std::span<const std::byte>> sent_;
  std::vector<Receive> receives_;
  std::uint64_t started_ = 0;
};

/// Whether a message arrives although these bits of it and its checksum are flipped.
bool arrives(std::span<const std::byte> message, const std::vector<std::size_t>& flips) {
  Echo echo(flips);
  const auto transport = checked(echo);
  Bytes buffer(message.size());
  transport->send(message, 1);
  transport->recv(buffer, 1, nullptr);
  try {
    transport->wait(transport->start({}), Deadline::never());
  } catch (const CommError&) {
    return false;
  }
  return true;
}

TEST(Checked, EveryTwoFlippedBitsAreNoticed) {
  for (const std::size_t bytes : {std::size_t{16}, std::size_t{11}}) {
    Bytes message(bytes);
    for (std::size_t i = 0; i < bytes; ++i) message[i] = static_cast<std::byte>(29 * i + 5);
    EXPECT_TRUE(arrives(message, {}));
    const std::size_t bits = 8 * (bytes + sizeof(std::uint64_t));
    std::size_t taken = 0;
    for (std::size_t first = 0; first < bits; ++first) {
      taken += arrives(message, {first}) ? 1 : 0;
      for (std::size_t second = first + 1; second < bits; ++second) {
        taken += arrives(message, {first, second}) ? 1 : 0;
      }
    }
    EXPECT_EQ(taken, 0U);
  }
}

}  // namespace
}  // namespace winnow::comm
