// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/agreement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/checksum.hpp"
#include "tests/compress/messages.hpp"

namespace winnow::comm {
namespace {

using namespace tests;
using compress::Header;

/// Rank 0 of two; the test gives the other rank's messages: its header, and its words if asked.
class OtherSays final : public Transport {
 public:
  explicit OtherSays(Bytes message, std::string words = {})
      : message_(std::move(message)), words_(std::move(words)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  int node() const override { return 0; }
  void send(std::span<const std::byte> message, int) override {
    sent_.insert(sent_.end(), message.begin(), message.end());
  }
  void recv(std::span<std::byte> buffer, int, std::uint64_t* message_bytes) override {
    const bool first = received_++ == 0;
    const auto message = first ? message_.span() : std::as_bytes(std::span(words_));
    std::ranges::copy(message.first(std::min(message.size(), buffer.size())), buffer.begin());
    *message_bytes = first ? message.size() : buffer.size();
  }
  Ticket start(const Exec&) override { return {}; }
  void wait(Ticket, Deadline) override {}
  void abort(std::string_view, FailureKind) noexcept override {}

  const std::vector<std::byte>& sent() const { return sent_; }

 private:
  Bytes message_;
  std::string words_;
  int received_ = 0;
  std::vector<std::byte> sent_;
};

/// The header of the golden agreement message.
Header first_call() {
  Header header = gradient_header(25600000, 256000);
  header.part = 0;
  return header;
}

std::string error_of(OtherSays& world, const Header& mine, std::string_view refusal = "") {
  Workspace workspace;
  try {
    return agree(world, Exec{.workspace = &workspace}, mine, {.refusal = refusal},
                 Deadline::never());
  } catch (const CommError& error) {
    return std::string("CommError: ") + error.what();
  }
}

TEST(Agreement, SendsAndReadsTheGoldenMessage) {
  Bytes golden = golden_message("agreement");
  OtherSays world(golden);
  EXPECT_EQ(error_of(world, first_call()), "");
  EXPECT_TRUE(std::ranges::equal(world.sent(), golden.span()));
}

TEST(Agreement, SendsAndReadsTheGoldenRefusal) {
  Bytes golden = golden_message("agreement_refused");
  OtherSays refusing(golden);
  EXPECT_EQ(error_of(refusing, first_call()), "rank 1 refuses; its own error says why");
  Header with_words = first_call();
  with_words.count = 6;
  with_words.k = 0;
  with_words.kind = Header::Kind::agreement;
  with_words.flags = Header::kRefused;
  with_words.checksum = 0;
  const auto bytes = std::as_bytes(std::span(&with_words, 1));
  std::uint64_t sum = 0;
  kernels::checksums({}, {{bytes}}, &sum);
  with_words.checksum = sum;
  OtherSays explaining(Bytes(bytes), "no\nway");
  EXPECT_EQ(error_of(explaining, first_call()), "rank 1 refuses: no?way");

  OtherSays ready(golden_message("agreement"));
  Header mine = first_call();
  mine.count = mine.k = 0;
  mine.flags = Header::kRefused;
  EXPECT_EQ(error_of(ready, mine, "this rank refuses"), "this rank refuses");
  const auto words = std::span(ready.sent()).subspan(sizeof(Header));
  EXPECT_STREQ(reinterpret_cast<const char*>(words.data()), "this rank refuses");
}

TEST(Agreement, TrustsNoBit) {
  Bytes golden = golden_message("agreement");
  for (std::size_t bit = 0; bit < 8 * golden.span().size(); ++bit) {
    Bytes forged = golden;
    forged.span()[bit / 8] ^= std::byte{1} << (bit % 8);
    OtherSays world(forged);
    EXPECT_EQ(error_of(world, first_call()),
              "CommError: rank 1 does something else while rank 0 is in the first call of a bucket")
        << "bit " << bit;
  }
}

}  // namespace
}  // namespace winnow::comm
