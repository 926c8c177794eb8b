// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/checksum.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "lab/reference/place.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/answers.hpp"
#include "tests/kernels/cases/checksum_cases.hpp"

namespace winnow::tests {
namespace {

using Messages = std::vector<std::span<const std::byte>>;

std::vector<std::uint64_t> sums_of(const Exec& exec, const Messages& messages) {
  OnPlace<std::uint64_t> sums(exec, messages.size());
  kernels::checksums(exec, messages, sums.data());
  return sums.download();
}

TEST(Checksum, EqualsReferenceAtAnyLength) {
  std::vector<std::uint64_t> words(many(1 << 20) + 4);
  std::mt19937_64 random(1);
  for (std::uint64_t& word : words) word = random();
  words[1] = ~std::uint64_t{0};
  const auto messages = [](std::span<const std::uint64_t> memory) {
    Messages all;
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{33},
          std::size_t{4095}, std::size_t{4097}, 2 * memory.size() - 3}) {
      for (const std::size_t first : {0U, 1U}) {  // 1 is off the alignment of vectors
        all.push_back(std::as_bytes(memory.subspan(first)).first(4 * count));
      }
    }
    return all;
  };
  const auto expected = sums_of({.place = lab::kReference}, messages(words));
  for_each_body([&](const Exec& exec) {
    OnPlace<std::uint64_t> there(exec, words);
    EXPECT_EQ(sums_of(exec, messages(there.span())), expected);
  });
}

TEST(Checksum, OfManyMessagesEqualsReference) {
  for_each_body([](const Exec& exec) {
    expect_lists_of_checksums_equal_reference(
        [&](std::span<const std::uint64_t> memory, std::span<const SummedPart> parts) {
          OnPlace<std::uint64_t> there(exec, memory);
          Messages messages;
          for (const SummedPart& part : parts) messages.push_back(part.of(there.span()));
          return sums_of(exec, messages);
        });
  });
}

TEST(Checksum, IsTheDeclaredFormula) {
  const std::vector<std::uint32_t> words{5, 0, 0xffffffff, 7, 3, 9};
  const std::uint64_t expected = 5 + 0xffffffffull * 5 + 7 * 7 + 3 * 9;
  for_each_body([&](const Exec& exec) {
    OnPlace<std::uint32_t> there(exec, words);
    EXPECT_EQ(sums_of(exec, {std::as_bytes(there.span()).first(20)}).front(), expected);
  });
}

/// Each variant is a message of its own.
TEST(Checksum, ChangesWithEveryBitAndEveryExchange) {
  constexpr std::size_t kWords = 150;
  std::vector<std::uint32_t> words(kWords), variants;
  std::mt19937 random(2);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  const auto add = [&] { variants.insert(variants.end(), words.begin(), words.end()); };
  add();
  for (std::size_t bit = 0; bit < 32 * kWords; ++bit) {
    words[bit / 32] ^= 1u << (bit % 32);
    add();
    words[bit / 32] ^= 1u << (bit % 32);
  }
  for (std::size_t i = 1; i < kWords; ++i) {
    std::swap(words[0], words[i]);
    add();
    std::swap(words[0], words[i]);
  }
  for_each_body([&](const Exec& exec) {
    OnPlace<std::uint32_t> there(exec, variants);
    Messages messages;
    for (std::size_t at = 0; at < variants.size(); at += kWords) {
      messages.push_back(std::as_bytes(there.span().subspan(at, kWords)));
    }
    const std::vector<std::uint64_t> sums = sums_of(exec, messages);
    EXPECT_EQ(std::ranges::count(sums, sums.front()), 1);
  });
}

TEST(Checksum, RefusesWrongSizesAndPlaces) {
  std::vector<std::uint64_t> memory(4);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(memory));
  const auto refuses = [&](std::span<const std::byte> of, std::uint64_t* sum,
                           const std::string& why) {
    EXPECT_THAT(
        [&] {
          kernels::checksums({}, {&of, 1}, sum);
        },
        testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  refuses(bytes.first(6), memory.data(), "whole 32-bit words");
  refuses(bytes.subspan(4), memory.data(), "8-byte aligned");
  refuses(bytes, nullptr, "8-byte aligned place");
}

}  // namespace
}  // namespace winnow::tests
