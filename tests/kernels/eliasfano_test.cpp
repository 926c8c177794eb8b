// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/index_coding.hpp"
#include "tests/kernels/cases/index_cases.hpp"
#include "tests/kernels/supports.hpp"
#include "tests/kernels/targets.hpp"

// The cpu body writes and reads the reference's bytes for every Highway target of this machine.

namespace winnow::kernels {
namespace {

using namespace tests;

constexpr Exec kReference{.place = Place::reference};

AlignedBytes encode(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index) {
  return encode_index(exec, compress::kEliasFanoCoding, count, index);
}

bool decode(const Exec& exec, std::uint64_t count, std::span<const std::byte> in,
            std::span<std::uint32_t> index) {
  return decode_index(exec, compress::kEliasFanoCoding, count, in, index);
}

void check_round_trip(std::uint64_t count, const std::vector<std::uint32_t>& index) {
  AlignedBytes expected = encode(kReference, count, index);
  std::vector<std::uint32_t> decoded(index.size(), 7);
  ASSERT_TRUE(decode(kReference, count, expected.span(), decoded));
  ASSERT_EQ(decoded, index);
  for_each_target([&] {
    EXPECT_TRUE(encode(Exec{}, count, index) == expected);
    std::fill(decoded.begin(), decoded.end(), 7u);
    EXPECT_TRUE(decode(Exec{}, count, expected.span(), decoded));
    EXPECT_EQ(decoded, index);
  });
}

TEST(EliasFano, RoundTripsAndEqualsReference) {
  for (const std::uint32_t count : kSupportCounts) {
    for (const Support support : kSupports) {
      SCOPED_TRACE(describe(support, count));
      check_round_trip(count, make_support(support, count, 1));
    }
  }
}

// Every number of low bits that there is, with k around each group size of the fast body.
TEST(EliasFano, RoundTripsEveryNumberOfLowBits) {
  std::vector<bool> seen(32);
  for (std::uint32_t spacing = 0; spacing < 32; ++spacing) {
    for (std::uint64_t k = 1; k < 100; k += k < 20 ? 1 : 13) {
      const std::uint64_t count = std::min((k << spacing) + 1, (std::uint64_t{1} << 32) - 1);
      std::mt19937_64 random(k);
      std::vector<std::uint32_t> index;
      for (std::uint64_t i = 0; i < k; ++i) {
        const std::uint64_t begin = count / k * i, width = count / k;
        index.push_back(static_cast<std::uint32_t>(begin + random() % width));
      }
      SCOPED_TRACE(describe(Support::random, count));
      seen[eliasfano_shape(count, k).low_bits] = true;
      check_round_trip(count, index);
    }
  }
  // With 27 low bits the high part of one index below 2^32 is one word: more never save any.
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 28);
}

TEST(EliasFano, CarriesTheLargestUniverse) {
  const std::uint64_t count = (std::uint64_t{1} << 32) - 1;
  const auto top = static_cast<std::uint32_t>(count - 1);
  check_round_trip(count, {});
  check_round_trip(count, {0});
  check_round_trip(count, {top});
  check_round_trip(count, {0, 1, top - 1, top});
  std::vector<std::uint32_t> spread;
  for (std::uint32_t i = 0; i < 5000; ++i) spread.push_back(i * 858993u);
  check_round_trip(count, spread);
}

TEST(EliasFano, ShapeIsSmallestAndNearEntropy) {
  for (const std::uint64_t count : {1ull, 100ull, 4097ull, 25600000ull, 4294967295ull}) {
    for (const std::uint64_t k :
         {std::uint64_t{0}, std::uint64_t{1}, count / 1000, count / 100, count / 2, count}) {
      const EliasFanoShape shape = eliasfano_shape(count, k);
      for (std::uint32_t l = 0; l < 32; ++l) {
        const std::uint64_t bytes = (k * l + 63) / 64 * 8 + (k + (count >> l) + 1 + 63) / 64 * 8;
        EXPECT_LE(shape.bytes(), bytes);
        if (l < shape.low_bits) {
          EXPECT_LT(shape.bytes(), bytes) << "the smallest l wins";
        }
      }
    }
  }
  for (const double density : {0.01, 0.001}) {
    const double n = 25600000, k = std::ceil(density * n);
    const double entropy =
        (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2.0);
    const auto bytes = eliasfano_shape(25600000, static_cast<std::uint64_t>(k)).bytes();
    EXPECT_LE(8 * static_cast<double>(bytes), 1.10 * entropy) << density;
    EXPECT_GE(8 * static_cast<double>(bytes), entropy) << density;
  }
  EXPECT_THROW(eliasfano_shape(std::uint64_t{1} << 33, 1), UsageError);
  EXPECT_THROW(eliasfano_shape(5, 6), UsageError);
}

/// Decodes changed bytes: both bodies agree, and what they accept encodes to the same bytes again.
void check_decode(std::uint64_t count, std::size_t k, AlignedBytes& bytes) {
  std::vector<std::uint32_t> index(k);
  const bool sound = decode(kReference, count, bytes.span(), index);
  if (sound) {
    ASSERT_TRUE(encode(kReference, count, index) == bytes);
  }
  std::vector<std::uint32_t> again(k);
  ASSERT_EQ(decode(Exec{}, count, bytes.span(), again), sound);
  if (sound) {
    ASSERT_EQ(again, index);
  }
}

TEST(EliasFano, AcceptsOnlyWhatItWrites) {
  struct Case {
    std::uint64_t count;
    std::vector<std::uint32_t> index;
  };
  std::vector<Case> cases{{0, {}},    {1, {}},        {1, {0}},         {5, {1, 3}},
                          {1000, {}}, {1 << 30, {9}}, {4294967295, {9}}};
  for (const Support support : kSupports) cases.push_back({3000, make_support(support, 3000, 2)});
  for_each_target([&] {
    for (const Case& c : cases) {
      SCOPED_TRACE(describe(Support::random, c.count) + ", k " + std::to_string(c.index.size()));
      const AlignedBytes sound = encode(kReference, c.count, c.index);
      AlignedBytes bytes = sound;
      for (std::size_t bit = 0; bit < 8 * bytes.span().size(); ++bit) {
        bytes = sound;
        bytes.span()[bit / 8] ^= std::byte{1} << (bit % 8);
        check_decode(c.count, c.index.size(), bytes);
      }
      std::mt19937 random(3);
      for (int trial = 0; trial < 2000; ++trial) {  // the right number of ones, moved
        bytes = sound;
        const auto span = bytes.span();
        for (int swap = 0; swap < 2 && !span.empty(); ++swap) {
          std::swap(span[random() % span.size()], span[random() % span.size()]);
        }
        check_decode(c.count, c.index.size(), bytes);
      }
    }
  });
}

TEST(EliasFano, RefusesDisorderRepeatsAndOverflow) {
  ASSERT_EQ(eliasfano_shape(40, 4).low_bits, 0u);
  ASSERT_EQ(eliasfano_shape(400, 4).low_bits, 3u);
  for_each_target([&] {
    const auto refuses = [&](std::uint64_t universe, std::vector<std::uint32_t> index,
                             std::uint64_t written_as) {
      // Written for a larger universe of the same shape, or with indices that seal never gets.
      AlignedBytes bytes = encode(kReference, written_as, index);
      std::vector<std::uint32_t> decoded(index.size());
      ASSERT_EQ(bytes.span().size(), eliasfano_shape(universe, index.size()).bytes());
      EXPECT_FALSE(decode(kReference, universe, bytes.span(), decoded));
      EXPECT_FALSE(decode(Exec{}, universe, bytes.span(), decoded));
    };
    refuses(40, {1, 5, 5, 7}, 40);
    refuses(400, {64, 70, 70, 300}, 400);
    refuses(400, {64, 71, 70, 300}, 400);
    refuses(399, {1, 2, 3, 399}, 400);
    refuses(39, {1, 2, 3, 39}, 40);
    std::vector<std::uint32_t> three(3), five(5);
    AlignedBytes four = encode(kReference, 40, std::vector<std::uint32_t>{1, 2, 3, 4});
    EXPECT_FALSE(decode(Exec{}, 40, four.span(), three));
    EXPECT_FALSE(decode(Exec{}, 40, four.span(), five));
    EXPECT_THROW(decode(Exec{}, 40, four.span().first(four.span().size() - 8), five), UsageError);
  });
}

}  // namespace
}  // namespace winnow::kernels
