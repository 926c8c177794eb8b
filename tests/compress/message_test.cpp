// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/message.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "compress/index_coding.hpp"
#include "compress/nearest.hpp"
#include "kernels/checksum.hpp"
#include "kernels/eliasfano.hpp"

namespace winnow::compress {
namespace {

constexpr int kSender = 5;

/// Bytes at an 8-byte, and no better, alignment.
class Bytes {
 public:
  explicit Bytes(std::size_t size) : words_(size / 8 + 3), size_(size) {}
  explicit Bytes(std::span<const std::byte> from) : Bytes(from.size()) {
    std::ranges::copy(from, span().begin());
  }
  std::span<std::byte> span() {
    const bool even = reinterpret_cast<std::uintptr_t>(words_.data()) % 16 == 0;
    return std::as_writable_bytes(std::span(words_)).subspan(even ? 8 : 0, size_);
  }

 private:
  std::vector<std::uint64_t> words_;
  std::size_t size_;
};

Header gradient_header(std::uint64_t count, std::uint64_t k) {
  Header header;
  header.digest = 0x0123456789abcdef;
  header.bucket = 0xfedcba9876543210;
  header.call = 1000000007;
  header.count = count;
  header.k = k;
  header.epoch = 3;
  header.part = 2;
  return header;
}

Bytes sealed(const Header& header, std::span<const std::uint32_t> index,
             std::span<const float> value, const Exec& exec = {}) {
  Bytes message(message_bytes(header.count, header.k));
  std::ranges::fill(message.span(), std::byte{0xa5});  // what was there before must not show
  const MessageLayout layout = lay_out(header.count, header.k, message.span());
  std::ranges::copy(value, layout.value.begin());
  seal(exec, header, index, message.span());
  return message;
}

std::vector<float> ramp(std::uint64_t k) {
  std::vector<float> value;
  for (std::uint64_t i = 0; i < k; ++i) {
    value.push_back((static_cast<float>(i) + 1.5f) * (i % 2 == 0 ? 1.0f : -1.0f));
  }
  return value;
}

/// k of count positions, spread; the last is the last there is.
std::vector<std::uint32_t> spread(std::uint64_t count, std::uint64_t k) {
  std::vector<std::uint32_t> index;
  for (std::uint64_t i = 1; i <= k; ++i) {
    index.push_back(static_cast<std::uint32_t>(count * i / k - 1));
  }
  return index;
}

enum class Outcome { opened, usage_error, comm_error };
struct Answer {
  Outcome outcome;
  std::string text;
};

Answer try_open(std::span<const std::byte> message, const Header& expected) {
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  try {
    (void)open(Exec{.workspace = &workspace}, message, expected, kSender);
  } catch (const UsageError& error) {
    return {Outcome::usage_error, error.what()};
  } catch (const CommError& error) {
    return {Outcome::comm_error, error.what()};
  }
  return {Outcome::opened, ""};
}

void expect_refused(std::span<const std::byte> message, const Header& expected,
                    std::string_view because = "") {
  const Answer answer = try_open(message, expected);
  EXPECT_EQ(answer.outcome, Outcome::comm_error) << answer.text;
  EXPECT_NE(answer.text.find("message from rank 5: "), std::string::npos) << answer.text;
  EXPECT_NE(answer.text.find(because), std::string::npos) << answer.text;
}

/// Gives a forged message the checksum that belongs to it.
void correct_checksum(std::span<std::byte> message) {
  const std::uint64_t zero = 0;
  std::memcpy(message.data() + offsetof(Header, checksum), &zero, 8);
  const std::uint64_t sum = kernels::checksum(Exec{.place = Place::reference}, message);
  std::memcpy(message.data() + offsetof(Header, checksum), &sum, 8);
}

TEST(Message, RoundTrips) {
  struct Case {
    std::uint64_t count, k;
    std::string_view coding;
  };
  const Case cases[] = {{0, 0, "none"},
                        {1, 1, "none"},
                        {1000, 1000, "none"},
                        {1, 0, "raw32"},
                        {1000, 0, "raw32"},
                        {1000, 1, "raw32"},
                        {4294967295, 2, "raw32"},
                        {40, 4, "eliasfano"},
                        {1000, 999, "eliasfano"},
                        {4294967295, 100, "eliasfano"},
                        {100000, 1000, "eliasfano"},
                        {100001, 777, "eliasfano"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.k << " of " << c.count);
    Header header = gradient_header(c.count, c.k);
    header.flags = Header::kPoison;
    const auto index = spread(c.count, c.k);
    const auto value = ramp(c.k);
    Bytes message = sealed(header, index, value);
    EXPECT_EQ(message.span().size() % 8, 0u);
    Bytes again = sealed(header, index, value, Exec{.place = Place::reference});
    EXPECT_TRUE(std::ranges::equal(message.span(), again.span()));

    Workspace workspace;
    const Workspace::Scope scope(workspace);
    const MessageView view =
        open(Exec{.workspace = &workspace}, message.span(), gradient_header(c.count, c.k), kSender);
    EXPECT_EQ(view.header.flags, Header::kPoison);
    EXPECT_EQ(view.header.k, c.k);
    EXPECT_EQ(index_coding_name(view.header.index_coding), c.coding);
    EXPECT_TRUE(std::ranges::equal(view.value, value));
    if (c.k == c.count) {
      EXPECT_TRUE(view.index.empty());
    } else {
      EXPECT_TRUE(std::ranges::equal(view.index, index));
    }
  }
}

TEST(Message, CodingIsTheOneWithFewestBytes) {
  for (const std::uint64_t count : {2ull, 63ull, 64ull, 1000ull, 25600000ull, 4294967295ull}) {
    for (std::uint64_t k = 0; k < count; k = k * 2 + 1) {
      const std::uint64_t raw = (4 * k + 7) / 8 * 8;
      const std::uint64_t coded = kernels::eliasfano_shape(count, k).bytes();
      EXPECT_EQ(choose_index_coding(count, k)->id, raw <= coded ? 1 : 2) << k << " of " << count;
      EXPECT_EQ(message_bytes(count, k), 64 + std::min(raw, coded) + (4 * k + 7) / 8 * 8);
    }
    EXPECT_EQ(choose_index_coding(count, count)->id, 0);
    EXPECT_EQ(message_bytes(count, count), 64 + (4 * count + 7) / 8 * 8);
  }
}

TEST(Message, TableIsInOrderOfIds) {
  for (std::size_t id = 0; id < index_codings().size(); ++id) {
    EXPECT_EQ(index_codings()[id]->id, id);
    EXPECT_EQ(index_coding_name(static_cast<std::uint8_t>(id)), index_codings()[id]->name);
  }
  EXPECT_EQ(index_coding_name(200), "unknown");
}

TEST(Message, RefusesWhatItCannotCarry) {
  constexpr std::uint64_t kBig = std::uint64_t{1} << 32;
  EXPECT_THROW(message_bytes(5, 6), UsageError);
  EXPECT_THROW(message_bytes(kBig, 3), UsageError);
  EXPECT_EQ(message_bytes(kBig + 2, kBig + 2), 64 + 4 * (kBig + 2));
  EXPECT_THROW(message_bytes(~std::uint64_t{0}, ~std::uint64_t{0}), UsageError);
  Bytes message(message_bytes(100, 7));
  const std::vector<std::uint32_t> six = spread(100, 6);
  EXPECT_THROW(lay_out(100, 7, message.span().first(8)), UsageError);
  EXPECT_THROW(lay_out(100, 7, Bytes(2000).span().subspan(4, message.span().size())), UsageError);
  EXPECT_THROW(seal(Exec{}, gradient_header(100, 7), six, message.span()), UsageError);
  Header flagged = gradient_header(100, 6);
  flagged.flags = 4;
  EXPECT_THROW(sealed(flagged, six, ramp(6)), UsageError);
  EXPECT_THROW(open(Exec{}, message.span(), gradient_header(100, 7), 0), UsageError);
}

struct Small {
  Header header;
  Bytes message;
};

/// One message of each coding, with and without padding behind the values.
std::vector<Small> small_messages() {
  std::vector<Small> messages;
  const auto add = [&](std::uint64_t count, std::uint64_t k) {
    const Header header = gradient_header(count, k);
    messages.push_back({header, sealed(header, spread(count, k), ramp(k))});
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
  return messages;
}

TEST(Message, RefusesEveryFlippedBit) {
  for (Small& small : small_messages()) {
    const auto message = small.message.span();
    for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
      SCOPED_TRACE(testing::Message()
                   << small.header.k << " of " << small.header.count << ", bit " << bit);
      message[bit / 8] ^= std::byte{1} << (bit % 8);
      expect_refused(message, small.header);
      message[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    EXPECT_EQ(try_open(message, small.header).outcome, Outcome::opened);
  }
}

// With the checksum made right again, every bit still is refused or changes what the message says:
// nothing in it is ignored.
TEST(Message, EveryBitMeansSomething) {
  for (Small& small : small_messages()) {
    const std::size_t values = small.message.span().size() - (4 * small.header.k + 7) / 8 * 8;
    const std::size_t padding = values + 4 * small.header.k;
    for (std::size_t bit = 0; bit < 8 * small.message.span().size(); ++bit) {
      Bytes forged(small.message.span());
      forged.span()[bit / 8] ^= std::byte{1} << (bit % 8);
      if (bit / 64 == offsetof(Header, checksum) / 8) continue;
      correct_checksum(forged.span());
      const Answer answer = try_open(forged.span(), small.header);
      SCOPED_TRACE(testing::Message() << small.header.k << " of " << small.header.count << ", bit "
                                      << bit << ": " << answer.text);
      const bool flags = bit / 16 == offsetof(Header, flags) / 2 && bit % 16 < 2;
      const bool value = bit / 8 >= values && bit / 8 < padding;
      const bool index = bit / 8 >= sizeof(Header) && bit / 8 < values;
      if (flags || value) {
        EXPECT_EQ(answer.outcome, Outcome::opened);
      } else if (!index) {
        EXPECT_NE(answer.outcome, Outcome::opened);
      } else if (answer.outcome == Outcome::opened) {
        Workspace workspace;
        const Workspace::Scope scope(workspace);
        const auto view = open(Exec{.workspace = &workspace}, forged.span(), small.header, kSender);
        EXPECT_FALSE(std::ranges::equal(view.index, spread(small.header.count, small.header.k)));
        Bytes again = sealed(view.header, view.index, view.value);
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
      expect_refused(other.span(), small.header, "bytes");
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
      header.index_coding = static_cast<std::uint8_t>(random() % 3);
      header.value_coding = 1;
      std::memcpy(noise.span().data(), &header, sizeof header);
    }
    expect_refused(noise.span(), gradient_header(40, 4));
  }
}

TEST(Message, RefusesForgedHeaders) {
  const Header sound = gradient_header(1000, 11);
  Bytes message = sealed(sound, spread(1000, 11), ramp(11));
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
      {"kind 3", [](Header& h) { h.kind = Header::Kind{3}; }},
      {"in the first call of a bucket", [](Header& h) { h.kind = Header::Kind::agreement; }},
      {"flags 0x0000000000000004", [](Header& h) { h.flags = 4; }},
      {"flags", [](Header& h) { h.flags = 0x8001; }},
      {"index coding 0 (none)", [](Header& h) { h.index_coding = 0; }},
      {"index coding 1 (raw32)", [](Header& h) { h.index_coding = 1; }},
      {"index coding 9 (unknown)", [](Header& h) { h.index_coding = 9; }},
      {"value coding 0", [](Header& h) { h.value_coding = 0; }},
      {"value coding 2", [](Header& h) { h.value_coding = 2; }},
      {"cannot be", [](Header& h) { h.count = 10; }},
      {"cannot be", [](Header& h) { h.k = 1001; }},
      {"cannot be", [](Header& h) { h.count = std::uint64_t{1} << 32; }},
      {"cannot be", [](Header& h) { h.count = kAll; }},
      {"cannot be", [](Header& h) { h.k = kAll; }},
      {"cannot be", [](Header& h) { h.count = h.k = kAll; }},
      {"cannot be", [](Header& h) { h.count = h.k = (std::uint64_t{1} << 62) + 11; }},
      {"index coding", [](Header& h) { h.count = h.k = (std::uint64_t{1} << 59) + 11; }},
      {"bytes, where", [](Header& h) { h.index_coding = 0, h.count = h.k = 1ull << 40; }},
      {"bytes, where", [](Header& h) { h.count = 4000000000, h.k = 3000000000; }},
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
  Bytes padded = sealed(header, spread(1000, 11), ramp(11));
  padded.span().back() = std::byte{1};
  correct_checksum(padded.span());
  expect_refused(padded.span(), header, "padding");
  for (const auto& index : {std::vector<std::uint32_t>{7, 7}, {8, 7}, {7, 1000}}) {
    const Header two = gradient_header(1000, 2);  // raw32
    Bytes message = sealed(two, index, ramp(2));
    expect_refused(message.span(), two, "ascending positions below 1000");
  }
  const Header one = gradient_header(1000, 1);
  Bytes filled = sealed(one, spread(1000, 1), ramp(1));
  filled.span()[sizeof(Header) + 4] = std::byte{1};
  correct_checksum(filled.span());
  expect_refused(filled.span(), one, "index part");
  Bytes repeated = sealed(header, std::vector<std::uint32_t>(11, 500), ramp(11));
  expect_refused(repeated.span(), header, "is not eliasfano");
}

TEST(Message, NamesWhatRanksDifferIn) {
  struct Case {
    std::string_view text;
    std::function<void(Header&)> change;
  };
  const Case cases[] = {
      {"digest of their options (0x0000000000000007 there, 0x0123456789abcdef here)",
       [](Header& h) { h.digest = 7; }},
      {"the bucket (", [](Header& h) { h.bucket ^= 1; }},
      {"the number of the call (", [](Header& h) { h.call += 1; }},
      {"epoch (", [](Header& h) { h.epoch = 0; }},
      {"the part of the bucket (", [](Header& h) { h.part = 0; }},
      // Another bucket has other counts: it still is the bucket that is named.
      {"the bucket (", [](Header& h) { h.bucket ^= 1, h.count = 77, h.k = 3; }},
  };
  for (const Case& c : cases) {
    Header header = gradient_header(1000, 11);
    c.change(header);
    Bytes message = sealed(header, spread(header.count, header.k), ramp(header.k));
    const Answer answer = try_open(message.span(), gradient_header(1000, 11));
    EXPECT_EQ(answer.outcome, Outcome::usage_error) << answer.text;
    EXPECT_NE(answer.text.find("rank 5 and this rank differ in "), std::string::npos);
    EXPECT_NE(answer.text.find(c.text), std::string::npos) << answer.text;
  }
}

TEST(Message, CarriesAnyBitsOfAValue) {
  const Header header = gradient_header(6, 6);
  const std::uint32_t bits[] = {0x7fc00001, 0xff800000, 0x80000000, 1, 0x7f800001, 0xffffffff};
  std::vector<float> value(6);
  std::memcpy(value.data(), bits, sizeof bits);
  Bytes message = sealed(header, {}, value);
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  const auto view = open(Exec{.workspace = &workspace}, message.span(), header, kSender);
  EXPECT_EQ(std::memcmp(view.value.data(), bits, sizeof bits), 0);
}

// tests/golden/make_golden.py writes these from the specification, without Winnow's code.
TEST(Message, EqualsGoldenMessages) {
  struct Golden {
    std::string name;
    Header header;
    std::vector<std::uint32_t> index;
    std::vector<float> value;
  };
  const auto header = [](Header::Kind kind, std::uint16_t flags, std::uint64_t count,
                         std::uint64_t k) {
    Header h = gradient_header(count, k);
    h.kind = kind;
    h.flags = flags;
    return h;
  };
  using Kind = Header::Kind;
  std::vector<std::uint32_t> squares, wide;
  for (std::uint32_t n = 0; n < 21; ++n) squares.push_back(2 * n * n);
  for (std::uint32_t n = 0; n < 7; ++n) wide.push_back(571428571 * n);
  std::vector<float> poison = ramp(5);
  poison.push_back(std::bit_cast<float>(0x7fc00000u));
  poison.push_back(-std::numeric_limits<float>::infinity());
  const Golden golden[] = {
      {"agreement", header(Kind::agreement, Header::kRefused, 0, 0), {}, {}},
      {"nothing_kept", header(Kind::gradient, 0, 10, 0), {}, {}},
      {"everything_kept",
       header(Kind::gradient, 0, 3, 3),
       {},
       {1, -0.0f, std::numeric_limits<float>::denorm_min()}},
      {"raw32", header(Kind::gradient, 0, 1000, 1), {999}, ramp(1)},
      {"eliasfano_no_low_bits", header(Kind::gradient, 0, 40, 4), {0, 1, 5, 39}, ramp(4)},
      {"eliasfano", header(Kind::gradient, 0, 1000, 21), squares, ramp(21)},
      {"eliasfano_poison", header(Kind::gradient, Header::kPoison, 4000000000, 7), wide, poison},
  };
  for (const Golden& g : golden) {
    SCOPED_TRACE(g.name);
    std::ifstream file("golden/" + g.name + ".bin", std::ios::binary);
    ASSERT_TRUE(file) << "run from the folder tests";
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    Bytes written{std::as_bytes(std::span(text))};
    Bytes message = sealed(g.header, g.index, g.value);
    EXPECT_TRUE(std::ranges::equal(message.span(), written.span()));
    EXPECT_EQ(try_open(written.span(), g.header).outcome, Outcome::opened);
  }
}

TEST(NearestWord, HasFewestEdits) {
  constexpr std::string_view kKnown[] = {"none", "topk", "blocktopk", "threshold", "randomk"};
  EXPECT_EQ(nearest_word("topk", kKnown), "topk");
  EXPECT_EQ(nearest_word("topq", kKnown), "topk");
  EXPECT_EQ(nearest_word("tresholt", kKnown), "threshold");
  EXPECT_EQ(nearest_word("blocktop", kKnown), "blocktopk");
  EXPECT_EQ(nearest_word("random", kKnown), "randomk");
  EXPECT_EQ(nearest_word("", kKnown), "none");
  EXPECT_EQ(nearest_word("xxxx", kKnown), "none");  // the first among equals
  EXPECT_EQ(nearest_word("topk", {}), "");
}

}  // namespace
}  // namespace winnow::compress
