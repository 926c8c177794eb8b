// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/message_header.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/checksum.hpp"
#include "kernels/finish_message.hpp"
#include "lab/reference/place.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/message_header_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::CallStatus;
using kernels::HeaderLayout;
using kernels::MessageCheck;

TEST(MessageHeader, FinishedInPlaceEqualsACodecsMessage) {
  for_each_body([](const Exec& exec) {
    expect_messages_equal_reference([&](std::span<std::byte> message, const Header& header,
                                        std::span<const std::uint32_t> words,
                                        std::span<const kernels::SelectResult> results,
                                        CallStatus* status) {
      OnPlace<std::byte> there(exec, message);
      OnPlace<std::uint32_t> word_sources(exec, words);
      OnPlace<CallStatus> device_status(exec, 1);
      if (status != nullptr) device_status.upload({status, 1});
      OnPlace<kernels::SelectResult> result_sources(exec, results);
      kernels::finish_message(exec, {.message = there.span(),
                                     .header = std::bit_cast<HeaderBytes>(header),
                                     .layout = kHeaderLayout,
                                     .poison = {word_sources.span(), result_sources.span()},
                                     .status = status == nullptr ? nullptr : device_status.data()});
      std::ranges::copy(there.download(), message.begin());
      if (status != nullptr) *status = device_status.download().front();
    });
  });
}

TEST(MessageHeader, PaddingBecomesZero) {
  for_each_body([](const Exec& exec) {
    for (const std::size_t padding : {0U, 1U, 4U, 7U}) {
      OnPlace<std::uint64_t> there(exec, std::vector<std::uint64_t>(5000, ~std::uint64_t{0}));
      kernels::finish_message(exec, {.message = std::as_writable_bytes(there.span()),
                                     .layout = kHeaderLayout,
                                     .padding = padding});
      std::vector<std::uint64_t> message = there.download();
      EXPECT_EQ(message.back(), ~std::uint64_t{0} >> 8 * padding);
      EXPECT_EQ(message[message.size() - 2], ~std::uint64_t{0});
      const auto bytes = std::as_writable_bytes(std::span(message));
      Header header = header_of(bytes);
      const std::uint64_t told = std::exchange(header.checksum, 0);
      std::memcpy(bytes.data(), &header, sizeof header);
      EXPECT_EQ(told, checksum_of({.place = lab::kReference}, bytes));
    }
  });
}

/// The cases' messages in a place, their checksums, and the words that say which parts were
/// refused.
struct Received {
  std::vector<OnPlace<std::byte>> memory;
  OnPlace<std::uint64_t> sums;
  OnPlace<std::uint32_t> refused;
  std::vector<MessageCheck> messages;

  Received(const Exec& exec, std::span<const CheckCase> cases)
      : sums(exec, cases.size()), refused(exec, 2 * cases.size()) {
    std::vector<std::uint32_t> words(2 * cases.size());
    std::vector<std::span<const std::byte>> bytes;
    for (std::size_t m = 0; m < cases.size(); ++m) {
      bytes.push_back(memory.emplace_back(exec, cases[m].bytes()).span());
      messages.push_back({.bytes = bytes.back(),
                          .expected = cases[m].expected,
                          .sum = sums.data() + m,
                          .number = static_cast<std::uint32_t>(m)});
      for (std::size_t part = 0; part < 2; ++part) {
        const std::optional<std::uint32_t>& said = cases[m].refused[part];
        if (!said) continue;
        words[2 * m + part] = *said;
        messages.back().refused[part] = refused.data() + 2 * m + part;
      }
    }
    if (!words.empty()) refused.upload(words);
    kernels::checksums(exec, bytes, sums.data());
  }
};

TEST(MessageHeader, EachClaimsItsOwnK) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;  // k needs both halves of its word
  for_each_body([](const Exec& exec) {
    for (const std::size_t count : {0U, 1U, 300U}) {  // more than one launch takes
      std::vector<Header> headers(count);
      for (std::size_t m = 0; m < count; ++m) headers[m].k = m * kHuge + 3 * m + 1;
      OnPlace<Header> there(exec, headers);
      std::vector<MessageCheck> messages(count);
      for (std::size_t m = 0; m < count; ++m) {
        messages[m].bytes = std::as_bytes(there.span().subspan(m, 1));
      }
      OnPlace<std::uint64_t> k(exec, std::vector<std::uint64_t>(count, 77));
      kernels::claimed_k(exec, {messages, kHeaderLayout, k.span()});
      const std::vector<std::uint64_t> claimed = k.download();
      for (std::size_t m = 0; m < count; ++m) EXPECT_EQ(claimed[m], headers[m].k) << m;
    }
  });
}

TEST(MessageHeader, EveryChangedBitIsTold) {
  for_each_body([](const Exec& exec) {
    expect_all_statuses([&](std::span<const CheckCase> cases) {
      const Received received(exec, cases);
      OnPlace<std::uint32_t> status(exec, std::vector<std::uint32_t>(cases.size(), 77));
      kernels::check_headers(exec, {received.messages, kHeaderLayout, status.span()});
      return status.download();
    });
  });
}

TEST(MessageHeader, TheFirstUnsoundMessageIsTold) {
  for_each_body([](const Exec& exec) {
    expect_all_call_statuses([&](std::span<const CheckCase> cases, CallStatus before) {
      const Received received(exec, cases);
      OnPlace<CallStatus> status(exec, std::vector{before});
      kernels::check_messages(exec, {received.messages, kHeaderLayout, status.data()});
      return status.download().front();
    });
  });
}

TEST(MessageHeader, WrongSizesAndPlacesAreRefused) {
  std::vector<std::uint64_t> memory(9);
  const auto bytes = std::as_writable_bytes(std::span(memory));
  const auto refuses_finish = [](const kernels::FinishJob& job, const std::string& why,
                                 decltype(&kernels::finish_message) finish =
                                     kernels::finish_message) {
    EXPECT_THAT([&] { finish({}, job); },
                testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  const auto refuses = [&](std::span<std::byte> message, const HeaderLayout& layout,
                           const std::string& why) {
    refuses_finish({.message = message, .layout = layout}, why);
  };
  refuses(bytes.first(56), kHeaderLayout, "no shorter than its header");
  refuses(bytes.subspan(4), kHeaderLayout, "8-byte aligned");
  refuses(bytes.first(70), kHeaderLayout, "whole 32-bit words");
  refuses(bytes, {.flags_at = 7, .poison = 1, .checksum_at = 56}, "multiple of 2");
  refuses(bytes, {.flags_at = 64, .poison = 1, .checksum_at = 56}, "multiple of 2");
  refuses(bytes, {.flags_at = 6, .poison = 1, .checksum_at = 52}, "one of 8");
  refuses(bytes, {.flags_at = 6, .poison = 1, .checksum_at = 64}, "one of 8");
  refuses(bytes, {.flags_at = 6, .poison = 1, .checksum_at = 56, .k_at = 20}, "one of 8");
  refuses(bytes, {.flags_at = 6, .poison = 1, .checksum_at = 56, .call_at = 64}, "one of 8");
  refuses(bytes, {.flags_at = 58, .poison = 1, .checksum_at = 56}, "apart");
  refuses_finish({.message = bytes.first(68), .layout = kHeaderLayout, .padding = 4},
                 "padding ends with a word");
  const std::vector<std::uint32_t> index(5);
  refuses_finish({.message = bytes, .layout = kHeaderLayout, .count = 9, .index = index},
                 "its header and its indices", kernels::finish_raw32);
  refuses_finish({.message = bytes, .layout = kHeaderLayout, .count = 900, .index = index},
                 "its header and its indices", kernels::finish_bitmap);
  refuses_finish({.message = bytes, .layout = kHeaderLayout, .count = 900, .index = index},
                 "its header and its indices", kernels::finish_eliasfano);
  refuses_finish({.message = bytes, .layout = kHeaderLayout, .count = 4, .index = index},
                 "at most count <= 2^32", kernels::finish_bitmap);

  const auto refuses_check = [](const MessageCheck& message, std::size_t words,
                                const std::string& why) {
    std::vector<std::uint32_t> status(words);
    EXPECT_THAT(
        [&] {
          kernels::check_headers({}, {{&message, 1}, kHeaderLayout, status});
        },
        testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  const std::uint64_t sum = 0;
  const MessageCheck sound{.bytes = bytes, .expected = {}, .sum = &sum};
  refuses_check(sound, 2, "a word for its status");
  refuses_check({.bytes = bytes.first(56), .expected = {}, .sum = &sum}, 1, "no shorter");
  refuses_check({.bytes = bytes.subspan(4), .expected = {}, .sum = &sum}, 1, "8-byte aligned");
  refuses_check({.bytes = bytes, .expected = {}}, 1, "checksum of its bytes");
  EXPECT_THROW(kernels::claimed_k({}, {{&sound, 1}, kHeaderLayout, {}}), UsageError);
  EXPECT_THROW(kernels::check_messages({}, {{&sound, 1}, kHeaderLayout, nullptr}), UsageError);
}

}  // namespace
}  // namespace winnow::tests
