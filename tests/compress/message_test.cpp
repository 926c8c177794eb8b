// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/message.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>
#include <winnow/error.hpp>

#include "compress/index_coding.hpp"
#include "kernels/index_coding.hpp"
#include "lab/reference/place.hpp"
#include "tests/compress/messages.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::compress {
namespace {

using namespace tests;

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
                        {1000, 999, "bitmap"},
                        {1000, 300, "bitmap"},
                        {1000, 200, "eliasfano"},
                        {4294967295, 100, "eliasfano"},
                        {100000, 1000, "eliasfano"},
                        {100001, 777, "eliasfano"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.k << " of " << c.count);
    Header header = gradient_header(c.count, c.k);
    header.flags = Header::kPoison;
    const auto index = spread(c.count, c.k);
    const auto value = ramp(c.k);
    Bytes message = finished_message(header, index, value);
    EXPECT_EQ(message.span().size() % 8, 0u);
    Bytes again = finished_message(header, index, value, Exec{.place = lab::kReference});
    EXPECT_TRUE(std::ranges::equal(message.span(), again.span()));

    Workspace workspace;
    const Workspace::Scope scope(workspace);
    const MessageView view = decode(Exec{.workspace = &workspace}, message.span(),
                                    gradient_header(c.count, c.k), kSender);
    EXPECT_EQ(view.header.flags, Header::kPoison);
    EXPECT_EQ(view.header.k, c.k);
    EXPECT_EQ(index_coding_name(view.header.index_coding), c.coding);
    EXPECT_TRUE(std::ranges::equal(view.term.value, value));
    if (c.k == c.count) {
      EXPECT_TRUE(view.term.index.empty());
    } else {
      EXPECT_TRUE(std::ranges::equal(view.term.index, index));
    }
  }
}

TEST(Message, CodingIsTheOneWithFewestBytes) {
  for (const std::uint64_t count : {2ull, 63ull, 64ull, 1000ull, 25600000ull, 4294967295ull}) {
    for (std::uint64_t k = 0; k < count; k = k * 2 + 1) {
      const std::uint64_t raw = (4 * k + 7) / 8 * 8;
      const std::uint64_t coded = kernels::eliasfano_shape(count, k).bytes();
      const std::uint64_t bits = (count + 63) / 64 * 8;
      const int fewest = raw <= std::min(coded, bits) ? 1 : coded <= bits ? 2 : 3;
      EXPECT_EQ(choose_index_coding(count, k)->id, fewest) << k << " of " << count;
      EXPECT_EQ(message_bytes(count, k), 64 + std::min({raw, coded, bits}) + (4 * k + 7) / 8 * 8);
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
  const Shape shape = shape_of(100, 7);
  Bytes message(shape.bytes());
  const std::vector<std::uint32_t> six = spread(100, 6);
  EXPECT_THROW(lay_out(shape, message.span().first(8)), UsageError);
  EXPECT_THROW(lay_out(shape, Bytes(2000).span().subspan(4, message.span().size())), UsageError);
  EXPECT_THROW(finish_message(Exec{}, gradient_header(100, 7), shape, six, message.span()),
               UsageError);
  Header flagged = gradient_header(100, 6);
  flagged.flags = 4;
  EXPECT_THROW(finished_message(flagged, six, ramp(6)), UsageError);
  EXPECT_THROW(decode(Exec{}, message.span(), gradient_header(100, 7), 0), UsageError);
}

TEST(Message, NeedsTheWorkspacesOfItsPlace) {
  const MemorySource nobodys{.allocate = [](std::size_t) -> std::byte* { throw std::bad_alloc(); },
                             .release = [](std::byte*) noexcept {},
                             .is_device = true};
  Workspace device(nobodys), host;
  const Header header = gradient_header(1000, 11);
  Bytes message = finished_message(header, spread(1000, 11), ramp(11));
  for (const Exec& exec :
       {Exec{.place = Place::cuda, .workspace = &device}, Exec{.workspace = &device},
        Exec{.place = Place::cuda, .workspace = &host}}) {
    EXPECT_THROW(finished_message(header, spread(1000, 11), ramp(11), exec), UsageError);
    EXPECT_THROW(decode(exec, message.span(), header, kSender), UsageError);
  }
}

// Where a receiver knows but a bound, up to that; else exactly as many.
TEST(Message, MayCarryFewerWhereThatIsExpected) {
  for (const auto kind : {Header::Kind::gradient, Header::Kind::contribution, Header::Kind::sum,
                          Header::Kind::partial}) {
    Header header = gradient_header(1000, 11);
    header.kind = kind;
    Bytes message = finished_message(header, spread(1000, 11), ramp(11));
    Header expected = header;
    EXPECT_EQ(try_open(message.span(), expected).outcome, Outcome::opened);
    for (const std::uint64_t most : {11u, 12u, 1000u}) {
      expected.k = most;
      EXPECT_EQ(try_open(message.span(), Expected::at_most(expected)).outcome, Outcome::opened);
      if (most > 11) expect_refused(message.span(), expected, "k 11 of count 1000");
    }
    expected.k = 10;
    expect_refused(message.span(), Expected::at_most(expected), "with k up to 10 of count 1000");
  }
}

// So that what varies with the support takes no memory in a later step that it did not take before.
TEST(Message, TakesTheSameScratchWhateverItCarries) {
  for (const std::string_view name : {"float32", "int8"}) {
    const Codings codings = codings_of(name);
    Header expected = gradient_header(1000, 1000);
    std::vector<std::ptrdiff_t> taken;
    for (const std::uint64_t k : {0u, 1u, 400u, 999u, 1000u}) {
      Bytes message =
          finished_message(gradient_header(1000, k), spread(1000, k), ramp(k), Exec{}, codings);
      Workspace workspace;
      const Workspace::Scope scope(workspace);
      workspace.reserve(100000);
      const std::byte* const before = workspace.take<std::byte>(1).data();
      (void)decode(Exec{.workspace = &workspace}, message.span(), Expected::at_most(expected),
                   kSender, codings);
      taken.push_back(workspace.take<std::byte>(1).data() - before);
    }
    EXPECT_EQ(taken, std::vector<std::ptrdiff_t>(taken.size(), taken.front()));
  }
}

// A layout for all of them: the takes of a call do not grow with its ranks.
TEST(Message, TakesScratchEquallyOftenForAnyNumber) {
  const Header header = gradient_header(1000, 11);
  Bytes message = finished_message(header, spread(1000, 11), ramp(11));
  for (const std::size_t messages : {1u, 2u, 7u}) {
    const std::vector<ReceivedMessage> incoming(messages, {message.span(), header, kSender});
    std::vector<MessageView> views(messages);
    Workspace workspace;
    const Workspace::Scope scope(workspace);
    (void)decode_all(Exec{.workspace = &workspace}, incoming, {}, views);
    // How many elements each carries; the checks, their notes and positions; the jobs of one
    // index coding; statuses and the host's copy of them.
    EXPECT_EQ(workspace.takes(), 8U) << messages;
  }
}

TEST(Message, TheShortestIsNoLongerThanAll) {
  for (const std::uint64_t count : {0u, 1u, 5u, 1000u, 100000u}) {
    for (const auto& codings : {Codings{}, Codings{.index = &kRaw32Coding}, codings_of("int4")}) {
      const std::size_t all = message_bytes(count, count, codings);
      for (std::uint64_t k = 0; k <= count; k = k * 9 / 8 + 1) {
        const std::uint64_t shortest = shortest_k(count, k, codings);
        EXPECT_EQ(shortest, message_bytes(count, k, codings) < all ? k : count);
        EXPECT_LE(message_bytes(count, shortest, codings), all);
      }
    }
  }
}

// A coding that was asked for is used whatever the size, and a decoder asks for the same.
TEST(Message, CarriesTheIndexCodingAskedFor) {
  const Header header = gradient_header(1000, 11);
  for (const IndexCoding* asked : {&kRaw32Coding, &kEliasFanoCoding, &kBitmapCoding}) {
    const Codings codings{.index = asked};
    Bytes message = finished_message(header, spread(1000, 11), ramp(11), Exec{}, codings);
    Workspace workspace;
    const Workspace::Scope scope(workspace);
    const auto view =
        decode(Exec{.workspace = &workspace}, message.span(), header, kSender, codings);
    EXPECT_EQ(view.header.index_coding, asked->id);
    EXPECT_TRUE(std::ranges::equal(view.term.index, spread(1000, 11)));
    const bool usual = asked == &kEliasFanoCoding;
    EXPECT_EQ(try_open(message.span(), header).outcome == Outcome::opened, usual);
  }
}

TEST(Message, ItsCodedValuesAreDecodedForASum) {
  const Header header = gradient_header(1000, 130);
  for (const kernels::ValueCoding& coding : lossy_codings()) {
    const Codings codings = codings_of(coding.name);
    Bytes message = finished_message(header, spread(1000, 130), ramp(130), Exec{}, codings);
    std::vector<float> errors = ramp(130);
    std::vector<std::uint64_t> words(kernels::value_bytes(codings.value, 130) / 8);
    kernels::quantize(Exec{}, codings.value, {}, errors, std::as_writable_bytes(std::span(words)));
    Workspace workspace;
    const Workspace::Scope scope(workspace);
    const auto view =
        decode(Exec{.workspace = &workspace}, message.span(), header, kSender, codings);
    EXPECT_TRUE(view.term.value.empty());
    const auto placed = kernels::place_terms(Exec{.workspace = &workspace}, {&view.term, 1});
    const std::span<const float> value = placed.host.front().value;
    ASSERT_EQ(value.size(), 130U);
    for (std::size_t i = 0; i < 130; ++i) {
      EXPECT_EQ(ramp(130)[i] - value[i], errors[i]) << coding.name << " " << i;
    }
  }
}

TEST(Message, CarriesAnyBitsOfAValue) {
  const Header header = gradient_header(6, 6);
  const std::uint32_t bits[] = {0x7fc00001, 0xff800000, 0x80000000, 1, 0x7f800001, 0xffffffff};
  std::vector<float> value(6);
  std::memcpy(value.data(), bits, sizeof bits);
  Bytes message = finished_message(header, {}, value);
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  const auto view = decode(Exec{.workspace = &workspace}, message.span(), header, kSender);
  EXPECT_TRUE(std::ranges::equal(bits_of(view.term.value), bits));
}

}  // namespace
}  // namespace winnow::compress
