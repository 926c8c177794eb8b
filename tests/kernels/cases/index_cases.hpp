// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <random>
#include <span>
#include <vector>

#include "compress/index_coding.hpp"
#include "compress/message.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/supports.hpp"

namespace winnow::tests {

// Cases of index codings for bodies that run on a device, or on the model of one.

/// The encode and decode kernels of a coding.
struct IndexBody {
  const compress::IndexCoding& coding;
  std::function<void(std::uint64_t, std::span<const std::uint32_t>, std::span<std::byte>)> encode;
  std::function<bool(std::uint64_t, std::span<const std::byte>, std::span<std::uint32_t>)> decode;
};

/// Bytes at a multiple of 8, as messages are.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t bytes) : words_(bytes / 8, 0xa5a5a5a5a5a5a5a5U) {}
  std::span<std::byte> span() { return std::as_writable_bytes(std::span(words_)); }
  bool operator==(const AlignedBytes&) const = default;

 private:
  std::vector<std::uint64_t> words_;
};

/// The index part that finish_message writes at a place of the host.
inline AlignedBytes encode_index(const Exec& exec, const compress::IndexCoding& coding,
                                 std::uint64_t count, std::span<const std::uint32_t> index) {
  const std::size_t bytes = coding.bytes(count, index.size()).value_or(0);
  AlignedBytes message(kernels::kHeaderBytes + bytes), part(bytes);
  coding.finish(exec, {.message = message.span(),
                       .layout = compress::kHeaderLayout,
                       .count = count,
                       .index = index});
  std::ranges::copy(message.span().subspan(kernels::kHeaderBytes), part.span().begin());
  return part;
}

/// Decodes at a place of the host. Returns whether decode accepts the part.
inline bool decode_index(const Exec& exec, const compress::IndexCoding& coding, std::uint64_t count,
                         std::span<const std::byte> in, std::span<std::uint32_t> index) {
  std::uint32_t refused = 0;
  const kernels::DecodeJob job{.count = count, .in = in, .index = index, .refused = &refused};
  coding.decode(exec, {&job, 1});
  return refused == 0;
}

inline AlignedBytes encode_by_reference(const compress::IndexCoding& coding, std::uint64_t count,
                                        std::span<const std::uint32_t> index) {
  return encode_index({.place = lab::kReference}, coding, count, index);
}

inline void expect_round_trip(std::uint64_t count, const std::vector<std::uint32_t>& index,
                              const IndexBody& body) {
  SCOPED_TRACE(testing::Message() << "count " << count << ", k " << index.size());
  AlignedBytes expected = encode_by_reference(body.coding, count, index),
               got(expected.span().size());
  body.encode(count, index, got.span());
  EXPECT_TRUE(got == expected);
  std::vector<std::uint32_t> decoded(index.size(), 7);
  EXPECT_TRUE(body.decode(count, expected.span(), decoded));
  EXPECT_TRUE(decoded == index);
}

/// Counts around words, with every support.
inline void expect_round_trips(std::uint32_t count, const IndexBody& body) {
  for (const Support support : kSupports) {
    expect_round_trip(count, make_support(support, count, 1), body);
  }
}

/// Indices spread evenly but for chance, one in 2^spacing.
inline std::vector<std::uint32_t> spread_indices(std::uint64_t count, std::uint64_t k) {
  std::mt19937_64 random(k);
  std::vector<std::uint32_t> index;
  for (std::uint64_t i = 0; i < k; ++i) {
    index.push_back(static_cast<std::uint32_t>(count / k * i + random() % (count / k)));
  }
  return index;
}

/// The universe of k indices with this spacing.
inline std::uint64_t spread_count(std::uint64_t k, std::uint32_t spacing) {
  return std::min((k << spacing) + 1, (std::uint64_t{1} << 32) - 1);
}

/// Every possible number of low bits for each k, and the largest universe.
inline void expect_all_low_bits(const IndexBody& body, std::span<const std::uint64_t> ks) {
  for (std::uint32_t spacing = 0; spacing < 32; ++spacing) {
    for (const std::uint64_t k : ks) {
      const std::uint64_t count = spread_count(k, spacing);
      expect_round_trip(count, spread_indices(count, k), body);
    }
  }
  const std::uint64_t largest = (std::uint64_t{1} << 32) - 1;
  const auto top = static_cast<std::uint32_t>(largest - 1);
  for (const std::vector<std::uint32_t>& index :
       {std::vector<std::uint32_t>{}, {0}, {top}, {0, 1, top - 1, top}}) {
    expect_round_trip(largest, index, body);
  }
}

/// The largest number of bits to change, one at a time, and the number of swaps of bytes.
struct Damage {
  std::size_t bits = 60;
  int swaps = 20;
};

/// Messages with one bit changed, and with bytes swapped. The body accepts exactly what the
/// reference accepts; the reference encodes what it decoded to the same bytes again.
inline void expect_refusals(std::uint64_t count, const std::vector<std::uint32_t>& index,
                            const IndexBody& body, const Damage& damage) {
  SCOPED_TRACE(testing::Message() << "count " << count << ", k " << index.size());
  const AlignedBytes sound = encode_by_reference(body.coding, count, index);
  std::vector<std::uint32_t> expected(index.size()), got(index.size());
  const auto expect_same_answer = [&](AlignedBytes& bytes) {
    const bool accepts =
        decode_index({.place = lab::kReference}, body.coding, count, bytes.span(), expected);
    EXPECT_EQ(body.decode(count, bytes.span(), got), accepts);
    if (accepts) {
      EXPECT_TRUE(got == expected);
      EXPECT_TRUE(encode_by_reference(body.coding, count, expected) == bytes);
    }
  };
  AlignedBytes changed = sound;
  const std::size_t bits = 8 * changed.span().size(), step = bits / damage.bits + 1;
  for (std::size_t bit = 0; bit < bits; bit += step) {
    changed = sound;
    changed.span()[bit / 8] ^= std::byte{1} << (bit % 8);
    expect_same_answer(changed);
  }
  std::mt19937 random(3);
  for (int trial = 0; trial < damage.swaps && bits > 0; ++trial) {
    changed = sound;
    const std::span<std::byte> bytes = changed.span();
    std::swap(bytes[random() % bytes.size()], bytes[random() % bytes.size()]);
    expect_same_answer(changed);
  }
}

/// Messages with one position, or with none.
inline void expect_refusals_of_few(const IndexBody& body, const Damage& damage = {}) {
  for (const std::uint64_t count : {1ULL, 1000ULL, 1ULL << 30, 4294967295ULL}) {
    expect_refusals(count, {}, body, damage);
    expect_refusals(count, {0}, body, damage);
  }
}

inline void expect_refusals(const IndexBody& body, const Damage& damage = {}) {
  expect_refusals(0, {}, body, damage);
  expect_refusals(1, {0}, body, damage);
  expect_refusals(65, {}, body, damage);
  expect_refusals(40, {1, 5, 6, 39}, body, damage);
  expect_refusals(400, {64, 70, 71, 300}, body, damage);
  for (const Support support : {Support::clustered, Support::random}) {
    expect_refusals(3000, make_support(support, 3000, 2), body, damage);
  }
}

/// Elias-Fano parts in which two neighbours of equal high bits stand in the wrong order or are
/// equal, wherever their ones lie in a word, and at the end of one. The body must refuse each.
inline void expect_refuses_equal_high_bits(const IndexBody& body) {
  constexpr std::uint64_t kCount = 40'000;
  constexpr std::uint32_t kRun = 200;
  std::vector<std::uint32_t> index;
  for (std::uint32_t i = 0; i < kRun; ++i) index.push_back(1000 + i);
  index.push_back(30'000);
  const std::uint32_t low_bits = kernels::eliasfano_shape(kCount, index.size()).low_bits;
  std::vector<std::uint32_t> decoded(index.size());
  std::size_t across_words = 0;
  for (std::uint32_t i = 1; i < kRun; ++i) {
    if (index[i - 1] >> low_bits != index[i] >> low_bits) continue;
    across_words += ((index[i] >> low_bits) + i) % 64 == 0 ? 1 : 0;
    for (const bool repeats : {false, true}) {
      std::vector<std::uint32_t> wrong = index;
      wrong[i] = index[i - 1];
      if (!repeats) wrong[i - 1] = index[i];
      AlignedBytes bytes = encode_by_reference(body.coding, kCount, wrong);
      EXPECT_FALSE(body.decode(kCount, bytes.span(), decoded)) << i << (repeats ? " twice" : "");
    }
  }
  EXPECT_GT(across_words, 1U);
}

/// Parts of several lengths, one of them empty and one damaged, which `decode` reads at once.
inline void expect_shared_decode(
    const compress::IndexCoding& coding,
    const std::function<void(std::span<const kernels::DecodeJob>)>& decode) {
  SCOPED_TRACE(coding.name);
  constexpr std::uint32_t kCounts[] = {5000, 0, 70, 900, 140'003, 33, 12'000};
  constexpr std::size_t kParts = std::size(kCounts), kDamaged = 3;
  std::vector<std::vector<std::uint32_t>> expected, decoded;
  std::vector<AlignedBytes> parts;
  std::vector<std::uint32_t> refused(kParts);
  for (std::size_t p = 0; p < kParts; ++p) {
    expected.push_back(make_support(Support::random, kCounts[p], static_cast<std::uint32_t>(p)));
    decoded.emplace_back(expected[p].size());
    parts.push_back(encode_by_reference(coding, kCounts[p], expected[p]));
  }
  std::ranges::fill(parts[kDamaged].span().last(8), std::byte{0xff});
  std::vector<kernels::DecodeJob> jobs;
  for (std::size_t p = 0; p < kParts; ++p) {
    jobs.push_back({kCounts[p], parts[p].span(), decoded[p], &refused[p]});
  }
  ASSERT_FALSE(decode_index({.place = lab::kReference}, coding, kCounts[kDamaged],
                            parts[kDamaged].span(), decoded[kDamaged]));
  decode(jobs);
  for (std::size_t p = 0; p < kParts; ++p) {
    EXPECT_EQ(refused[p], p == kDamaged ? 1U : 0U) << p;
    if (p != kDamaged) {
      EXPECT_TRUE(decoded[p] == expected[p]) << p;
    }
  }
}

}  // namespace winnow::tests
