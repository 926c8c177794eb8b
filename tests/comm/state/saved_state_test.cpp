// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// States as bytes: what is read, and that nothing damaged is.
#include "comm/state/saved_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "comm/state/crc64.hpp"

namespace winnow::comm {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t kWord = sizeof(std::uint64_t);

/// What tests/golden/make_golden.py wrote; tests run in the folder tests.
Bytes golden_state(int version) {
  std::ifstream file("golden/version_" + std::to_string(version) + ".state", std::ios::binary);
  EXPECT_TRUE(file.good()) << version;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

bool is_refused(const Bytes& bytes) {
  try {
    (void)from_bytes(bytes);
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("damaged"), std::string::npos) << error.what();
    return true;
  }
  return false;
}

/// As few words as have all that a state can have.
Bytes small_state() {
  SavedState state{.ranks = 2, .rank = 1, .calls = 5, .parameters = {{.id = 7, .count = 2}}};
  state.parameters[0].residual = {1.5F, -2.5F};
  state.parameters[0].name = "w";
  return to_bytes(state);
}

void flip(Bytes& bytes, std::size_t bit) {
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
}

TEST(SavedState, BothVersionsAreRead) {
  for (const int version : {2, 3}) {
    const Bytes bytes = golden_state(version);
    SavedState state = from_bytes(bytes);
    EXPECT_EQ(state.ranks, 2U);
    EXPECT_EQ(state.rank, 1U);
    EXPECT_EQ(state.calls, 5U);
    ASSERT_EQ(state.parameters.size(), 1U);
    SavedParameter& parameter = state.parameters[0];
    EXPECT_EQ(parameter.id, 7U);
    EXPECT_EQ(parameter.count, 3U);
    EXPECT_EQ(parameter.piece_length, 2U);
    ASSERT_EQ(parameter.pieces.size(), 2U);
    EXPECT_EQ(parameter.pieces[0].dirty, 1U);
    EXPECT_EQ(parameter.pieces[1].turn, 2U);
    EXPECT_EQ(parameter.pieces[1].owned_by_plan, 9U);
    EXPECT_EQ(parameter.residual, (std::vector<float>{1.5F, -2.5F, 0}));
    EXPECT_EQ(parameter.calls, 5U);
    EXPECT_EQ(parameter.counted, 4U);
    EXPECT_EQ(parameter.moment, (std::vector<float>{0.25F, 4, 0.5F}));
    EXPECT_EQ(parameter.name, version == 2 ? "" : "layer1.weight");
    parameter.name = "layer1.weight";
    EXPECT_EQ(to_bytes(state), golden_state(3));
  }
}

/// How many changes of two bits `is_sound` takes.
template <class IsSound>
std::size_t count_taken(Bytes bytes, const IsSound& is_sound) {
  std::size_t taken = 0;
  for (std::size_t first = 0; first < 8 * bytes.size(); ++first) {
    flip(bytes, first);
    taken += is_sound(bytes) ? 1 : 0;
    for (std::size_t second = first + 1; second < 8 * bytes.size(); ++second) {
      flip(bytes, second);
      taken += is_sound(bytes) ? 1 : 0;
      flip(bytes, second);
    }
    flip(bytes, first);
  }
  return taken;
}

TEST(SavedState, EveryTwoFlippedBitsAreRefused) {
  const auto is_read = [](const Bytes& bytes) { return !is_refused(bytes); };
  EXPECT_EQ(count_taken(to_bytes({.ranks = 2, .rank = 1, .calls = 5, .parameters = {}}), is_read),
            0U);
  // A larger state has too many pairs for so many exceptions.
  const auto has_sum = [](const Bytes& bytes) {
    std::uint64_t sum = 0;
    std::memcpy(&sum, bytes.data() + bytes.size() - kWord, kWord);
    return crc64(std::span(bytes).first(bytes.size() - kWord)) == sum;
  };
  EXPECT_TRUE(has_sum(small_state()));
  EXPECT_EQ(count_taken(small_state(), has_sum), 0U);
}

TEST(SavedState, EveryOtherLengthIsRefused) {
  for (const Bytes& whole : {small_state(), golden_state(3)}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_TRUE(is_refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}));
    }
    Bytes longer = whole;
    for (std::size_t more = 0; more < 3 * kWord; ++more) {
      longer.push_back(std::byte{0});
      EXPECT_TRUE(is_refused(longer)) << more;
    }
    // The word that makes the checksum of what it is behind good.
    longer = whole;
    longer.resize(whole.size() + kWord);
    const std::uint64_t sum = crc64(whole);
    std::memcpy(longer.data() + whole.size(), &sum, kWord);
    EXPECT_TRUE(is_refused(longer));
  }
}

TEST(SavedState, WordsThatChangePlacesAreRefused) {
  Bytes bytes = golden_state(3);
  const std::size_t words = bytes.size() / kWord;
  const auto word = [&](std::size_t i) { return bytes.data() + i * kWord; };
  for (std::size_t a = 0; a < words; ++a) {
    for (std::size_t b = a + 1; b < words; ++b) {
      if (std::memcmp(word(a), word(b), kWord) == 0) continue;
      std::swap_ranges(word(a), word(a) + kWord, word(b));
      EXPECT_TRUE(is_refused(bytes)) << a << " and " << b;
      std::swap_ranges(word(a), word(a) + kWord, word(b));
    }
    Bytes without = bytes;
    const auto at = without.begin() + static_cast<std::ptrdiff_t>(a * kWord);
    without.erase(at, at + kWord);
    EXPECT_TRUE(is_refused(without)) << a;
  }
}

/// The value that the catalogue of CRCs gives, and a body bit by bit at every length and place.
TEST(Crc64, EqualsItsDefinition) {
  constexpr std::string_view kDigits = "123456789";
  EXPECT_EQ(crc64(std::as_bytes(std::span(kDigits))), 0xae8b14860a799888U);
  Bytes bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(37 * i + 11);
  for (std::size_t size = 0; size < 60; ++size) {
    for (std::size_t begin = 0; begin < 20; ++begin) {
      const auto some = std::span(bytes).subspan(begin, size);
      std::uint64_t rest = ~std::uint64_t{0};
      for (const std::byte byte : some) {
        rest ^= std::to_integer<std::uint64_t>(byte);
        for (int bit = 0; bit < 8; ++bit) {
          rest = rest >> 1 ^ ((rest & 1) != 0 ? 0x9a6c9329ac4bc9b5 : 0);
        }
      }
      EXPECT_EQ(crc64(some), ~rest) << size << " from " << begin;
    }
  }
}

}  // namespace
}  // namespace winnow::comm
