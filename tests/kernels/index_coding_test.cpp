// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/index_coding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/finish_cases.hpp"
#include "tests/kernels/cases/index_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::DecodeJob;
using kernels::eliasfano_shape;
using kernels::EliasFanoShape;

constexpr const compress::IndexCoding* kCodings[] = {
    &compress::kRaw32Coding, &compress::kEliasFanoCoding, &compress::kBitmapCoding};

/// Finishes and decodes on a place.
IndexBody on(const Exec& exec, const compress::IndexCoding& coding) {
  const auto encode = [&](std::uint64_t count, std::span<const std::uint32_t> index,
                          std::span<std::byte> out) {
    finish_indices(out, [&](std::span<std::byte> message, const HeaderBytes& header) {
      OnPlace<std::byte> there(exec, message);
      OnPlace<std::uint32_t> list(exec, index);
      coding.finish(exec, {.message = there.span(),
                           .header = header,
                           .layout = kHeaderLayout,
                           .count = count,
                           .index = list.span()});
      std::ranges::copy(there.download(), message.begin());
    });
  };
  const auto decode = [&](std::uint64_t count, std::span<const std::byte> in,
                          std::span<std::uint32_t> index) {
    OnPlace<std::byte> there(exec, in);
    OnPlace<std::uint32_t> list(exec, index.size()), refused(exec, 1);
    const DecodeJob job{count, there.span(), list.span(), refused.data()};
    coding.decode(exec, {&job, 1});
    std::ranges::copy(list.download(), index.begin());
    return refused.download().front() == 0;
  };
  return {coding, encode, decode};
}

TEST(IndexCoding, RoundTripsAndEqualsReference) {
  for_each_body([](const Exec& exec) {
    for (const compress::IndexCoding* coding : kCodings) {
      SCOPED_TRACE(coding->name);
      for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 63U, 64U, 65U, 4095U, 4097U}) {
        expect_round_trips(count, on(exec, *coding));
      }
    }
  });
}

TEST(IndexCoding, LongListsRoundTrip) {
  const auto count = static_cast<std::uint32_t>(many((1U << 18) + 7));
  for_each_body([&](const Exec& exec) {
    for (const compress::IndexCoding* coding : kCodings) {
      SCOPED_TRACE(coding->name);
      expect_round_trips(count, on(exec, *coding));
    }
  });
}

/// k lies around each group size of the SIMD body.
TEST(IndexCoding, EliasFanoRoundTripsEveryNumberOfLowBits) {
  std::vector<std::uint64_t> ks;
  for (std::uint64_t k = 1; k < 100; k += k < 20 ? 1 : 13) ks.push_back(k);
  std::vector<bool> seen(32);
  for (std::uint32_t spacing = 0; spacing < 32; ++spacing) {
    for (const std::uint64_t k : ks)
      seen[eliasfano_shape(spread_count(k, spacing), k).low_bits] = true;
  }
  // With 27 low bits the high part of one index below 2^32 is one word: more low bits never save a
  // word.
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 28);
  for_each_body(
      [&](const Exec& exec) { expect_all_low_bits(on(exec, compress::kEliasFanoCoding), ks); });
}

TEST(IndexCoding, ListsReachTheLastPosition) {
  constexpr std::uint64_t kLargest = (std::uint64_t{1} << 32) - 1;
  std::vector<std::uint32_t> spread;
  for (std::uint32_t i = 0; i < 5000; ++i) spread.push_back(i * 858993U);
  for_each_body([&](const Exec& exec) {
    expect_round_trip(kLargest, {0, 1, 4294967293, 4294967294}, on(exec, compress::kRaw32Coding));
    expect_round_trip(kLargest, spread, on(exec, compress::kEliasFanoCoding));
  });
}

/// On the host the test changes all bits and swaps more bytes; on a device it changes some bits.
TEST(IndexCoding, RefusesWhatNoEncoderWrites) {
  for_each_body([](const Exec& exec) {
    const Damage damage =
        exec.place == Place::cuda ? Damage{} : Damage{.bits = 8000, .swaps = 1000};
    for (const compress::IndexCoding* coding : kCodings) {
      SCOPED_TRACE(coding->name);
      expect_refusals(on(exec, *coding), damage);
    }
    expect_refusals_of_few(on(exec, compress::kRaw32Coding), damage);
    expect_refusals_of_few(on(exec, compress::kEliasFanoCoding), damage);
  });
}

/// The messages are written for a larger universe of the same shape, or have indices that
/// finish_message never gets.
TEST(IndexCoding, EliasFanoRefusesDisorderRepeatsAndOverflow) {
  ASSERT_EQ(eliasfano_shape(40, 4).low_bits, 0u);
  ASSERT_EQ(eliasfano_shape(400, 4).low_bits, 3u);
  for_each_body([](const Exec& exec) {
    const IndexBody body = on(exec, compress::kEliasFanoCoding);
    const auto refuses = [&](std::uint64_t universe, std::vector<std::uint32_t> index,
                             std::uint64_t written_as) {
      AlignedBytes bytes = encode_by_reference(body.coding, written_as, index);
      ASSERT_EQ(bytes.span().size(), eliasfano_shape(universe, index.size()).bytes());
      EXPECT_FALSE(body.decode(universe, bytes.span(), index)) << universe;
    };
    refuses(40, {1, 5, 5, 7}, 40);
    refuses(400, {64, 70, 70, 300}, 400);
    refuses(400, {64, 71, 70, 300}, 400);
    refuses(399, {1, 2, 3, 399}, 400);
    refuses(39, {1, 2, 3, 39}, 40);
    AlignedBytes four =
        encode_by_reference(body.coding, 40, std::vector<std::uint32_t>{1, 2, 3, 4});
    std::vector<std::uint32_t> three(3), five(5);
    EXPECT_FALSE(body.decode(40, four.span(), three));
    EXPECT_FALSE(body.decode(40, four.span(), five));
  });
}

/// A bitmap without words has no ones, and not even a first tile that could count them.
TEST(IndexCoding, AnEmptyBitmapNamesNothing) {
  for_each_body(
      [](const Exec& exec) { EXPECT_TRUE(on(exec, compress::kBitmapCoding).decode(0, {}, {})); });
}

/// The decoder names the one refused part among many. The reserved scratch is enough for any
/// content of the parts.
TEST(IndexCoding, DecodesManyPartsInReservedScratch) {
  constexpr std::size_t kParts = 40, kDamaged = 23;
  for_each_body([&](const Exec& exec) {
    for (const compress::IndexCoding* coding : kCodings) {
      SCOPED_TRACE(coding->name);
      std::vector<std::vector<std::uint32_t>> expected;
      std::vector<OnPlace<std::byte>> parts;
      std::vector<OnPlace<std::uint32_t>> lists;
      OnPlace<std::uint32_t> refused(exec, kParts);
      std::vector<DecodeJob> jobs;
      std::size_t scratch = 0;
      for (std::uint32_t p = 0; p < kParts; ++p) {
        const std::uint32_t count = 900 * p;
        expected.push_back(make_support(kSupports[p % std::size(kSupports)], count, p));
        AlignedBytes bytes = encode_by_reference(*coding, count, expected[p]);
        if (p == kDamaged) std::ranges::fill(bytes.span(), std::byte{0xff});
        parts.emplace_back(exec, std::span<const std::byte>(bytes.span()));
        lists.emplace_back(exec, expected[p].size());
        jobs.push_back({count, parts[p].span(), lists[p].span(), refused.data() + p});
        scratch += kernels::decode_scratch(exec, count);
      }
      Workspace& workspace = exec.place == Place::cuda ? *exec.device_workspace : *exec.workspace;
      workspace.reserve(scratch);
      const auto allocations = workspace.allocations();
      coding->decode(exec, jobs);
      EXPECT_EQ(workspace.allocations(), allocations);
      const std::vector<std::uint32_t> said = refused.download();
      for (std::size_t p = 0; p < kParts; ++p) {
        EXPECT_EQ(said[p], p == kDamaged ? 1U : 0U) << p;
        if (p != kDamaged) {
          EXPECT_TRUE(lists[p].download() == expected[p]) << p;
        }
      }
    }
  });
}

/// One from each stratum, and the same in all places.
TEST(IndexCoding, DrawnIndicesFollowTheirFormula) {
  struct Draw {
    std::uint64_t count, k;
  };
  constexpr Draw kDraws[] = {{0, 0},
                             {1, 1},
                             {7, 7},
                             {1000, 1},
                             {4097, 4096},
                             {100000, 3001},
                             {std::uint64_t{1} << 32, 5000}};
  for_each_body([&](const Exec& exec) {
    std::vector<OnPlace<std::uint32_t>> lists;
    std::vector<DecodeJob> jobs;
    for (const auto& [count, k] : kDraws) {
      lists.emplace_back(exec, k);
      jobs.push_back({.count = count,
                      .in = {},
                      .index = lists.back().span(),
                      .key = {.seed = 5, .call = count, .rank = 2, .stage = 9}});
    }
    kernels::seeded_decode(exec, jobs);
    for (std::size_t d = 0; d < std::size(kDraws); ++d) {
      const auto [count, k] = kDraws[d];
      const std::vector<std::uint32_t> index = lists[d].download();
      for (std::uint64_t i = 0; i < k; ++i) {
        const std::uint64_t begin = i * count / k, end = (i + 1) * count / k;
        const std::uint64_t random = kernels::random_word(jobs[d].key, i);
        ASSERT_EQ(index[i], begin + (random * (end - begin) >> 32)) << i << " of " << k;
        ASSERT_LT(index[i], end);
      }
    }
  });
}

/// Over many calls every position is drawn k / count of the times, and calls differ.
TEST(IndexCoding, DrawnIndicesAreEven) {
  constexpr std::uint64_t kCount = 103, kKept = 10, kCalls = 20000;
  std::vector<int> times(kCount);
  std::vector<std::uint32_t> index(kKept), last;
  for (std::uint64_t call = 0; call < kCalls; ++call) {
    const DecodeJob job{.count = kCount, .in = {}, .index = index, .key = {.call = call}};
    kernels::seeded_decode({}, {&job, 1});
    for (const std::uint32_t i : index) ++times[i];
    EXPECT_NE(index, last);
    last = index;
  }
  constexpr double kMean = static_cast<double>(kCalls * kKept) / kCount;
  for (const int number : times) EXPECT_NEAR(number, kMean, 0.1 * kMean);  // 11 to 4.6 sigma
}

TEST(IndexCoding, EliasFanoShapeIsSmallestAndNearEntropy) {
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
}

TEST(IndexCoding, RefusesWrongSizesAndPlaces) {
  std::vector<std::uint32_t> index(3);
  AlignedBytes bytes(24);
  std::uint32_t refused = 0;
  const DecodeJob job{
      .count = 65, .in = bytes.span().first(16), .index = index, .refused = &refused};
  using Decode = decltype(&kernels::raw32_decode);
  const auto refuses = [](Decode decode, const DecodeJob& wrong, const std::string& why) {
    EXPECT_THAT(
        [&] {
          decode({}, {&wrong, 1});
        },
        testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  DecodeJob wrong = job;
  wrong.refused = nullptr;
  refuses(kernels::raw32_decode, wrong, "a word for refused");
  wrong = job;
  wrong.in = bytes.span().first(8);
  refuses(kernels::raw32_decode, wrong, "take 16 bytes, not 8");
  refuses(kernels::bitmap_decode, wrong, "take 16 bytes, not 8");
  refuses(kernels::eliasfano_decode, wrong, "take 16 bytes, not 8");
  wrong.in = bytes.span().subspan(4, 16);
  refuses(kernels::raw32_decode, wrong, "8-byte aligned");
  refuses(kernels::bitmap_decode, wrong, "8-byte aligned");
  refuses(kernels::eliasfano_decode, wrong, "8-byte aligned");
  wrong = job;
  wrong.count = 2;
  refuses(kernels::raw32_decode, wrong, "at most count <= 2^32");
}

}  // namespace
}  // namespace winnow::tests
