// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "compress/message.hpp"
#include "kernels/message_header.hpp"
#include "lab/reference/place.hpp"
#include "tests/compress/messages.hpp"
#include "tests/kernels/cases/finish_cases.hpp"

namespace winnow::tests {

// Cases of finish_message and check_headers for bodies that run on a device, or on the model of
// one. A body must write exactly what compress::finish_message writes.

inline Header header_of(std::span<const std::byte> message) {
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  return header;
}

/// Finishes a message. A status that is not null gets the bit of poison, if a source is poisoned.
using FinishBody =
    std::function<void(std::span<std::byte> message, const Header&, std::span<const std::uint32_t>,
                       std::span<const kernels::SelectResult>, kernels::CallStatus* status)>;

/// One of many sources reports poison, at several places among them; or none does; or the call is
/// spoiled already, which is poison, too. The header names the status's call, or without a status
/// the one it was given.
inline void expect_messages_equal_reference(const FinishBody& body) {
  const auto expect_finished = [&](const Header& asked, std::span<const std::uint32_t> words,
                                   std::span<const kernels::SelectResult> results, bool poisoned) {
    SCOPED_TRACE(testing::Message() << words.size() << " words, " << results.size() << " results"
                                    << (poisoned ? ", poison" : ""));
    Header header = asked;
    if (poisoned) header.flags |= Header::kPoison;
    const std::vector<float> value{1, -2, 3};
    Bytes expected = finished_message(header, {}, value);
    Bytes got(expected.span());
    header = header_of(got.span());  // finish_message adds the codings
    header.flags = asked.flags;
    header.checksum = 77;  // no message's; finish_message ignores it
    std::ranges::fill(got.span().first(sizeof header), std::byte{0xa5});
    const std::vector<std::byte> before(got.span().begin(), got.span().end());
    body(got.span(), header, words, results, nullptr);
    EXPECT_TRUE(std::ranges::equal(got.span(), expected.span()));
    std::ranges::copy(before, got.span().begin());
    kernels::CallStatus status{.call = asked.call};
    header.call = 5;
    body(got.span(), header, words, results, &status);
    EXPECT_EQ(status.spoiled != 0, poisoned && (asked.flags & Header::kPoison) == 0);
    EXPECT_EQ(status.call, asked.call);
    EXPECT_TRUE(std::ranges::equal(got.span(), expected.span()));
    Header spoiled = asked;
    spoiled.flags |= Header::kPoison;
    expected = finished_message(spoiled, {}, value);
    status.spoiled = 1;
    body(got.span(), header, words, results, &status);
    EXPECT_EQ(status.spoiled, 1U);
    EXPECT_TRUE(std::ranges::equal(got.span(), expected.span()));
  };
  const Header plain = gradient_header(3, 3);
  for (const std::size_t count : {0U, 1U, 31U, 33U, 257U, 4097U}) {
    std::vector<std::uint32_t> words(count);
    std::vector<kernels::SelectResult> results(count,
                                               {.finite = true, .candidates = 9, .passes = 1});
    expect_finished(plain, words, {}, false);
    expect_finished(plain, {}, results, false);
    expect_finished(plain, words, results, false);
    for (std::size_t at = 0; at < count; at += count / 3 + 1) {
      words[at] = 2;
      expect_finished(plain, words, results, true);
      words[at] = 0;
      results[at].finite = false;
      expect_finished(plain, words, results, true);
      results[at].finite = true;
      results[at].overflow = true;
      expect_finished(plain, words, results, true);
      results[at].overflow = false;
    }
  }
  Header flagged = plain;
  flagged.flags = Header::kRefused;
  expect_finished(flagged, {}, {}, false);
  expect_finished(flagged, std::array{1U}, {}, true);
  flagged.flags = Header::kPoison;
  expect_finished(flagged, {}, {}, true);
}

/// A received message, and what check_headers says of it.
struct CheckCase {
  std::vector<std::uint64_t> message;
  HeaderBytes expected;
  std::array<std::optional<std::uint32_t>, 2> refused = {};  ///< null: no such word
  std::uint32_t status = 0;                                  ///< the expected one

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(message)); }
  std::uint64_t sum() const { return checksum_of({.place = lab::kReference}, bytes()); }
};

/// Cases with each bit of a finished message's header changed, and the first bits behind it: as
/// damage, and as by a sender, who finishes the changed message. Other cases have refused parts.
/// There are more cases than one launch takes.
inline std::vector<CheckCase> check_cases() {
  constexpr std::uint64_t kCount = 70;
  const std::vector<float> value(kCount, 1.5F);
  Bytes sound = finished_message(gradient_header(kCount, kCount), {}, value);
  const Header header = header_of(sound.span());
  std::vector<std::uint64_t> words(sound.span().size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), sound.span().data(), sound.span().size());
  const CheckCase untouched{.message = words, .expected = std::bit_cast<HeaderBytes>(header)};

  constexpr std::size_t kChecksumWord = offsetof(Header, checksum) / sizeof(std::uint64_t);
  constexpr std::size_t kPoisonBit = 8 * offsetof(Header, flags);
  static_assert(Header::kPoison == 1);
  const auto finish_again = [&](std::vector<std::uint64_t>& message) {
    message[kChecksumWord] = 0;
    message[kChecksumWord] = checksum_of({}, std::as_bytes(std::span(message)));
  };

  std::vector<CheckCase> cases{untouched};
  for (std::size_t bit = 0; bit < 8 * sizeof header + 2; ++bit) {
    CheckCase changed = untouched;
    changed.message[bit / 64] ^= std::uint64_t{1} << bit % 64;
    const std::uint32_t poison = bit == kPoisonBit ? kernels::kPoisoned : 0;
    changed.status = kernels::kUnsound | poison;
    cases.push_back(changed);
    finish_again(changed.message);
    const bool told = bit / 64 < kChecksumWord && bit != kPoisonBit;  // the header's words tell
    changed.status = (told ? kernels::kUnsound : 0) | poison;
    cases.push_back(changed);
  }
  for (const std::uint32_t first : {0U, 1U}) {
    for (const std::uint32_t second : {0U, 5U}) {
      CheckCase refused = untouched;
      refused.refused = {first, second};
      refused.status = (first | second) != 0 ? kernels::kUnsound : 0;
      cases.push_back(refused);
      refused.refused = {std::nullopt, second};
      refused.status = second != 0 ? kernels::kUnsound : 0;
      cases.push_back(refused);
    }
  }
  // The receiver may expect poison, and need not know the checksum.
  CheckCase poisoned = untouched;
  Header other = header;
  other.flags = Header::kPoison;
  other.checksum = 0;
  poisoned.expected = std::bit_cast<HeaderBytes>(other);
  cases.push_back(poisoned);
  return cases;
}

using CheckHeadersBody = std::function<std::vector<std::uint32_t>(std::span<const CheckCase>)>;

inline void expect_all_statuses(const CheckHeadersBody& body) {
  const std::vector<CheckCase> all = check_cases();
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{33},
                                  std::size_t{64}, all.size()}) {
    const std::span<const CheckCase> cases = std::span(all).last(count);
    const std::vector<std::uint32_t> status = body(cases);
    ASSERT_EQ(status.size(), count);
    for (std::size_t m = 0; m < count; ++m) EXPECT_EQ(status[m], cases[m].status) << m;
  }
}

using CallStatusBody =
    std::function<kernels::CallStatus(std::span<const CheckCase>, kernels::CallStatus before)>;

/// The messages have numbers. A poisoned or unsound message spoils the call, and the status names
/// the first unsound message, whatever it said of other messages before.
inline void expect_all_call_statuses(const CallStatusBody& body) {
  using kernels::CallStatus;
  std::vector<CheckCase> all = check_cases();
  const std::uint64_t call = header_of(all.front().bytes()).call;
  for (CheckCase& c : all) {  // what they say of the call does not matter
    std::memset(c.expected.data() + offsetof(Header, call), 0x5a, sizeof call);
  }
  const auto find = [&](std::uint32_t status) {
    return *std::ranges::find(all, status, &CheckCase::status);
  };
  const CheckCase sound = all.front(), poisoned = find(kernels::kPoisoned),
                  unsound = find(kernels::kUnsound);
  const auto judge = [&](std::vector<CheckCase> cases, CallStatus before = {}) {
    before.call = call;
    const CallStatus after = body(cases, before);
    EXPECT_EQ(after.call, call);
    return after;
  };
  std::vector<CheckCase> cases(70, sound);  // more than one launch takes
  EXPECT_EQ(judge(cases).spoiled, 0U);
  EXPECT_EQ(judge({}).spoiled, 0U);
  cases[3] = poisoned;
  EXPECT_EQ(judge(cases).spoiled, 1U);
  EXPECT_EQ(judge(cases).unsound, 0U);
  cases[66] = unsound;
  EXPECT_EQ(judge(cases).unsound, ~66U);
  cases[41] = cases[40] = unsound;
  const CallStatus status = judge(cases);
  EXPECT_EQ(status.spoiled, 1U);
  EXPECT_EQ(status.unsound, ~40U);
  EXPECT_EQ(status.not_finite, 0U);
  EXPECT_EQ(judge(cases, {.spoiled = 1, .not_finite = 1, .unsound = ~7U}).unsound, ~7U);
  EXPECT_EQ(judge(cases, {.spoiled = 1, .not_finite = 1, .unsound = ~50U}).unsound, ~40U);
  EXPECT_EQ(judge({unsound}).unsound, ~0U);
  for (const std::uint64_t other : {call + 1, call - 1, call + (std::uint64_t{1} << 40)}) {
    EXPECT_EQ(body({&sound, 1}, {.call = other}).unsound, ~0U);  // it is of another call
  }
}

}  // namespace winnow::tests
