// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What checksum=all proves of messages between ranks that have a secret: who sent them, and that
// none was changed, left out, repeated or returned. The checks of all transports, over such
// messages.
#include "comm/transport/message_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include <winnow/conformance/transport.hpp>

#include "comm/transport/bridge/checked.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/tcp_ranks.hpp"

namespace winnow::comm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr const char* kSecret = "of the job";

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

/// A transport that proves every message, and what it lies over.
struct Proving {
  explicit Proving(std::unique_ptr<Transport> over)
      : inner(std::move(over)), outer(checked(*inner)) {}
  std::unique_ptr<Transport> inner, outer;
};

const bool kRegistered = conformance::register_transport(
    "ProvingTransport",
    {.rank_counts =
         [] {
           return std::vector{1, 3};
         },
     .run = conformance::on_threads([](int ranks) {
       std::vector<std::shared_ptr<Transport>> made;
       for (auto& transport : tests::tcp_transports(ranks, tests::TcpWay::inet, kSecret)) {
         const auto both = std::make_shared<Proving>(std::move(transport));
         made.emplace_back(both, both->outer.get());
       }
       return made;
     })});

/// Passes on what its rank sends, changed; and the keys of the transport below, if it has them.
class Meddler final : public tests::ForwardingTransport, public MessageKeys {
 public:
  using Change = std::function<std::vector<Bytes>(std::vector<Bytes> messages)>;
  Meddler(std::shared_ptr<Transport> over, bool has_keys, Change change)
      : ForwardingTransport(over),
        keys_(has_keys ? dynamic_cast<const MessageKeys*>(over.get()) : nullptr),
        change_(std::move(change)) {}

  Credentials message_key(int peer) const override {
    return keys_ == nullptr ? Credentials() : keys_->message_key(peer);
  }
  void send(std::span<const std::byte> message, int peer) override {
    spans_.push_back(message);
    peer_ = peer;
  }
  Ticket start(const Exec& exec) override {
    messages_.clear();
    for (const auto& span : spans_) messages_.emplace_back(span.begin(), span.end());
    spans_.clear();
    messages_ = change_(std::move(messages_));
    for (const Bytes& message : messages_) ForwardingTransport::send(message, peer_);
    return ForwardingTransport::start(exec);
  }

 private:
  const MessageKeys* keys_;
  Change change_;
  std::vector<std::span<const std::byte>> spans_;
  std::vector<Bytes> messages_;
  int peer_ = 0;
};

/// What rank 0 says of two messages of rank 1, changed on their way.
std::string said_of(bool has_keys, const Meddler::Change& change) {
  auto transports = tests::tcp_transports(2, tests::TcpWay::inet, kSecret);
  const auto receiver = checked(*transports[0]);
  Meddler meddler(std::move(transports[1]), has_keys, change);
  const auto sender = checked(meddler);
  const Bytes first(100, std::byte{1}), second(100, std::byte{2});
  sender->send(first, 0);
  sender->send(second, 0);
  sender->wait(sender->start({}), soon());
  Bytes got(100), next(100);
  receiver->recv(got, 1, nullptr);
  receiver->recv(next, 1, nullptr);
  try {
    receiver->wait(receiver->start({}), soon());
  } catch (const CommError& error) {
    return error.what();
  }
  EXPECT_EQ(got, first);
  EXPECT_EQ(next, second);
  return "";
}

TEST(MessageKeys, UnchangedMessagesArrive) {
  EXPECT_EQ(said_of(true, [](auto messages) { return messages; }), "");
}

// It could make the checksums of jobs without a secret.
TEST(MessageKeys, WhoLacksThemCannotSend) {
  EXPECT_NE(said_of(false, [](auto messages) { return messages; }), "");
}

TEST(MessageKeys, EveryFlippedBitIsNoticed) {
  for (const std::size_t message : {0U, 1U, 2U, 3U}) {
    for (const std::size_t byte : {0U, 17U, 31U}) {
      EXPECT_THAT(said_of(true,
                          [&](auto messages) {
                            messages[message][byte] ^= std::byte{4};
                            return messages;
                          }),
                  testing::HasSubstr("its checksum is not that of its"));
    }
  }
}

TEST(MessageKeys, RepeatedAndExchangedMessagesAreNoticed) {
  EXPECT_NE(said_of(true,
                    [](auto messages) {
                      return std::vector{messages[0], messages[1], messages[0], messages[1]};
                    }),
            "");
  EXPECT_NE(said_of(true,
                    [](auto messages) {
                      return std::vector{messages[2], messages[3], messages[0], messages[1]};
                    }),
            "");
}

// What rank 0 has sent to rank 1 comes back as rank 1's.
TEST(MessageKeys, ReturnedMessagesAreNoticed) {
  auto transports = tests::tcp_transports(2, tests::TcpWay::inet, kSecret);
  const auto receiver = checked(*transports[0]);
  const Bytes message(100, std::byte{1});
  receiver->send(message, 1);
  receiver->wait(receiver->start({}), soon());
  Bytes copy(100), seal(32), got(100);
  transports[1]->recv(copy, 0, nullptr);
  transports[1]->recv(seal, 0, nullptr);
  transports[1]->wait(transports[1]->start({}), soon());
  EXPECT_EQ(copy, message);
  transports[1]->send(copy, 0);
  transports[1]->send(seal, 0);
  transports[1]->wait(transports[1]->start({}), soon());
  receiver->recv(got, 1, nullptr);
  EXPECT_THROW(receiver->wait(receiver->start({}), soon()), CommError);
}

TEST(MessageKeys, DifferFromTransportToTransportAndPairToPair) {
  const auto some = tests::tcp_transports(3, tests::TcpWay::inet, kSecret);
  const auto others = tests::tcp_transports(3, tests::TcpWay::inet, kSecret);
  const auto proof = [](const std::unique_ptr<Transport>& transport, int peer) {
    return dynamic_cast<const MessageKeys&>(*transport).message_key(peer).prove({});
  };
  EXPECT_EQ(proof(some[0], 1), proof(some[1], 0));
  EXPECT_NE(proof(some[0], 1), proof(some[0], 2));
  EXPECT_NE(proof(some[0], 1), proof(others[0], 1));
}

// RFC 4231, test case 2, and FIPS 180-4's of "abc".
TEST(Crypto, HasTheDigestsOfTheStandards) {
  const auto hex = [](const Digest& digest) {
    std::string text;
    for (const std::byte byte : digest) {
      text += "0123456789abcdef"[std::to_integer<int>(byte) / 16];
      text += "0123456789abcdef"[std::to_integer<int>(byte) % 16];
    }
    return text;
  };
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  EXPECT_EQ(hex(hmac_sha256(bytes("Jefe"), bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(sha256(bytes("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace winnow::comm
