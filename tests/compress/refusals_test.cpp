// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string_view>
#include <tuple>
#include <vector>

#include "compress/index_coding.hpp"
#include "compress/message.hpp"
#include "tests/compress/messages.hpp"

// Messages that decode() refuses.

namespace winnow::compress {
namespace {

using namespace tests;

struct Small {
  Header header;
  Bytes message;
  Codings codings = {};
};

/// One message of each coding, with and without padding behind the values.
std::vector<Small> small_messages() {
  std::vector<Small> messages;
  const auto add = [&](std::uint64_t count, std::uint64_t k) {
    const Header header = gradient_header(count, k);
    messages.push_back({header, finished_message(header, spread(count, k), ramp(k))});
  };
  for (const auto& [count, k] : {std::pair{0, 0},
                                 {3, 3},
                                 {4, 4},
                                 {9, 0},
                                 {1000, 1},
                                 {1000, 2},
                                 {1000, 11},
                                 {40, 4},
                                 {300, 30}}) {
    add(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(k));
  }
  for (const kernels::ValueCoding& coding : lossy_codings()) {
    for (const auto& [count, k, index] :
         {std::tuple{70, 70, static_cast<const IndexCoding*>(nullptr)},
          {300, 67, &kEliasFanoCoding},
          {300, 3, &kBitmapCoding}}) {
      const Header header =
          gradient_header(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(k));
      const Codings codings = codings_of(coding.name, index);
      messages.push_back({header,
                          finished_message(header, spread(header.count, header.k), ramp(header.k),
                                           Exec{}, codings),
                          codings});
    }
  }
  return messages;
}

TEST(Message, RefusesEveryFlippedBit) {
  for (Small& small : small_messages()) {
    const auto message = small.message.span();
    for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
      SCOPED_TRACE(testing::Message()
                   << small.header.k << " of " << small.header.count << ", bit " << bit);
      message[bit / 8] ^= std::byte{1} << (bit % 8);
      expect_refused(message, small.header, "", small.codings);
      message[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    EXPECT_EQ(try_open(message, small.header, small.codings).outcome, Outcome::opened);
  }
}

// With the checksum made right again, every bit still is refused or changes what the message says:
// nothing in it is ignored.
TEST(Message, EveryBitMeansSomething) {
  for (Small& small : small_messages()) {
    const bool exact = small.codings.exact();
    const std::size_t values =
        small.message.span().size() - kernels::value_bytes(small.codings.value, small.header.k);
    const std::size_t padding = values + 4 * small.header.k;
    for (std::size_t bit = 0; bit < 8 * small.message.span().size(); ++bit) {
      Bytes forged(small.message.span());
      forged.span()[bit / 8] ^= std::byte{1} << (bit % 8);
      if (bit / 64 == offsetof(Header, checksum) / 8) continue;
      correct_checksum(forged.span());
      const Answer answer = try_open(forged.span(), small.header, small.codings);
      SCOPED_TRACE(testing::Message() << small.header.k << " of " << small.header.count << ", bit "
                                      << bit << ": " << answer.text);
      const bool flags = bit == 8 * offsetof(Header, flags);  // kPoison
      const bool value = exact && bit / 8 >= values && bit / 8 < padding;
      const bool index = bit / 8 >= sizeof(Header) && (bit / 8 < values || !exact);
      if (flags || value) {
        EXPECT_EQ(answer.outcome, Outcome::opened);
      } else if (!index) {
        EXPECT_NE(answer.outcome, Outcome::opened);
      } else if (answer.outcome == Outcome::opened) {
        Workspace workspace;
        const Workspace::Scope scope(workspace);
        const Exec exec{.workspace = &workspace};
        const auto view = decode(exec, forged.span(), small.header, kSender, small.codings);
        const auto sound = decode(exec, small.message.span(), small.header, kSender, small.codings);
        Bytes again(forged.span().size());
        const Shape shape = shape_of(view.header.count, view.header.k, small.codings);
        const auto value_part = view.bytes.last(shape.value_bytes);
        EXPECT_FALSE(std::ranges::equal(view.term.index, sound.term.index) &&
                     std::ranges::equal(value_part, sound.bytes.last(value_part.size())));
        const MessageLayout layout = lay_out(shape, again.span());
        std::ranges::copy(value_part, layout.value_part.begin());
        finish_message(exec, view.header, shape, view.term.index, again.span(), small.codings);
        EXPECT_TRUE(std::ranges::equal(again.span(), forged.span()));
      }
    }
  }
}

TEST(Message, RefusesEveryOtherLength) {
  for (Small& small : small_messages()) {
    const auto sound = small.message.span();
    for (std::size_t size = 0; size < sound.size() + 40; ++size) {
      if (size == sound.size()) continue;
      Bytes other(size);
      std::ranges::copy(sound.first(std::min(size, sound.size())), other.span().begin());
      SCOPED_TRACE(testing::Message() << size << " bytes of " << sound.size());
      expect_refused(other.span(), small.header, "bytes", small.codings);
    }
  }
}

TEST(Message, RefusesRandomBytes) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 20000; ++trial) {
    Bytes noise(random() % 30 * 8);
    for (std::byte& byte : noise.span()) byte = static_cast<std::byte>(random() & 0xff);
    // Some with a plausible header before the noise.
    if (trial % 2 == 1 && noise.span().size() >= sizeof(Header)) {
      Header header = gradient_header(random() % 100, random() % 50);
      header.index_coding = static_cast<std::uint8_t>(random() % 4);
      header.value_coding = 1;
      std::memcpy(noise.span().data(), &header, sizeof header);
    }
    expect_refused(noise.span(), gradient_header(40, 4));
  }
}

TEST(Message, RefusesForgedHeaders) {
  const Header sound = gradient_header(1000, 11);
  Bytes message = finished_message(sound, spread(1000, 11), ramp(11));
  Header header;
  std::memcpy(&header, message.span().data(), sizeof header);
  struct Case {
    std::string_view because;
    std::function<void(Header&)> forge;
  };
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  const Case cases[] = {
      {"begins with", [](Header& h) { h.magic = 0x12345678; }},
      {"version 2", [](Header& h) { h.version = 2; }},
      {"version 0", [](Header& h) { h.version = 0; }},
      {"kind 0", [](Header& h) { h.kind = Header::Kind{0}; }},
      {"kind 6", [](Header& h) { h.kind = Header::Kind{6}; }},
      {"is of kind 5", [](Header& h) { h.kind = Header::Kind::partial; }},
      {"is of kind 3", [](Header& h) { h.kind = Header::Kind::contribution; }},
      {"for owner 3 with", [](Header& h) { h.owner = 3; }},
      {"is of kind 2", [](Header& h) { h.kind = Header::Kind::agreement; }},
      {"flags 0x0000000000000004", [](Header& h) { h.flags = 4; }},
      {"flags", [](Header& h) { h.flags = 0x8001; }},
      {"index coding 0 (none)", [](Header& h) { h.index_coding = 0; }},
      {"index coding 1 (raw32)", [](Header& h) { h.index_coding = 1; }},
      {"index coding 9 (unknown)", [](Header& h) { h.index_coding = 9; }},
      {"value coding 0", [](Header& h) { h.value_coding = 0; }},
      {"value coding 2 (bf16)", [](Header& h) { h.value_coding = 2; }},
      {"value coding 52 (int8:block=256)", [](Header& h) { h.value_coding = 0x34; }},
      {"cannot be", [](Header& h) { h.count = 10; }},
      {"cannot be", [](Header& h) { h.k = 1001; }},
      {"cannot be", [](Header& h) { h.count = std::uint64_t{1} << 32; }},
      {"cannot be", [](Header& h) { h.count = kAll; }},
      {"cannot be", [](Header& h) { h.k = kAll; }},
      {"cannot be", [](Header& h) { h.count = h.k = kAll; }},
      {"cannot be", [](Header& h) { h.count = h.k = (std::uint64_t{1} << 62) + 11; }},
      {"cannot be", [](Header& h) { h.count = h.k = (std::uint64_t{1} << 59) + 11; }},
      {"bytes, where", [](Header& h) { h.index_coding = 0, h.count = h.k = 1ull << 40; }},
      {"bytes, where",
       [](Header& h) { h.index_coding = 3, h.count = 4000000000, h.k = 3000000000; }},
      {"bytes, where", [](Header& h) { h.k = 13; }},
      {"bytes, where", [](Header& h) { h.k = 9; }},
      // The same size, so only the comparison with what is expected can tell.
      {"k 11 of count 999", [](Header& h) { h.count = 999; }},
      {"k 11 of count 1001", [](Header& h) { h.count = 1001; }},
  };
  for (const Case& c : cases) {
    Header forged = header;
    c.forge(forged);
    SCOPED_TRACE(c.because);
    std::memcpy(message.span().data(), &forged, sizeof forged);
    correct_checksum(message.span());
    expect_refused(message.span(), sound, c.because);
  }
}

TEST(Message, RefusesForgedBodies) {
  const Header header = gradient_header(1000, 11);
  Bytes padded = finished_message(header, spread(1000, 11), ramp(11));
  padded.span().back() = std::byte{1};
  correct_checksum(padded.span());
  expect_refused(padded.span(), header, "with zeros behind them");
  for (const auto& index : {std::vector<std::uint32_t>{7, 7}, {8, 7}, {7, 1000}}) {
    const Header two = gradient_header(1000, 2);  // raw32
    Bytes message = finished_message(two, index, ramp(2));
    expect_refused(message.span(), two, "ascending positions below 1000");
  }
  const Header one = gradient_header(1000, 1);
  Bytes filled = finished_message(one, spread(1000, 1), ramp(1));
  filled.span()[sizeof(Header) + 4] = std::byte{1};
  correct_checksum(filled.span());
  expect_refused(filled.span(), one, "index part");
  Bytes repeated = finished_message(header, std::vector<std::uint32_t>(11, 500), ramp(11));
  expect_refused(repeated.span(), header, "is not eliasfano");
}

TEST(Message, NamesWhatRanksDifferIn) {
  struct Case {
    std::string_view text;
    std::function<void(Header&)> change;
  };
  const Case cases[] = {
      {"their options: give", [](Header& h) { h.digest = 7; }},
      {"the bucket: all", [](Header& h) { h.bucket ^= 1; }},
      {"the number of the call (", [](Header& h) { h.call += 1; }},
      {"the part of the bucket (", [](Header& h) { h.part = 0; }},
      // Another bucket has other counts: it still is the bucket that is named.
      {"the bucket: all", [](Header& h) { h.bucket ^= 1, h.count = 77, h.k = 3; }},
  };
  for (const Case& c : cases) {
    Header header = gradient_header(1000, 11);
    c.change(header);
    Bytes message = finished_message(header, spread(header.count, header.k), ramp(header.k));
    const Answer answer = try_open(message.span(), gradient_header(1000, 11));
    EXPECT_EQ(answer.outcome, Outcome::usage_error) << answer.text;
    EXPECT_NE(answer.text.find("rank 5 and this rank differ in "), std::string::npos);
    EXPECT_NE(answer.text.find(c.text), std::string::npos) << answer.text;
  }
}

}  // namespace
}  // namespace winnow::compress
