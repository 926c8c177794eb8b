// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/bucket.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace winnow::comm {
namespace {

/// A span of any length over memory that is never touched.
std::span<float> untouched(std::uint64_t count) {
  static float element;
  return {&element, count};
}

// Law 9 without the memory: a dense parameter of 2^33 + 5 elements is cut into parts whose pieces
// lie one after another with 64-bit offsets.
TEST(Bucket, MoreThanTwoToThe32Elements) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 33) + 5;
  const Segment segments[] = {{.elements = untouched(kCount), .id = 1},
                              {.elements = untouched(100), .id = 2}};
  Parameters parameters;
  const auto none = compress::make_compressor("none");
  const Bucket bucket = plan_bucket(segments, {.compressor = "none"}, 4, *none, parameters);
  EXPECT_EQ(bucket.count, kCount + 100);
  ASSERT_EQ(bucket.parts.size(), 3U);
  std::uint64_t offset = 0;
  for (const BucketPart& part : bucket.parts) {
    EXPECT_LE(part.part.count, Options::kMaxPart);
    const compress::Piece& piece = part.part.pieces.front();
    EXPECT_EQ(piece.offset, offset);
    EXPECT_EQ(piece.base, 0U);
    EXPECT_EQ(piece.elements.data() - segments[0].elements.data(),
              static_cast<std::ptrdiff_t>(offset));
    offset += piece.elements.size();
  }
  EXPECT_EQ(offset, kCount);
  EXPECT_EQ(bucket.parts.back().part.pieces.back().elements.size(), 100U);
  EXPECT_GT(bucket.parts[1].part.pieces[0].offset, std::uint64_t{UINT32_MAX} - 64);
  EXPECT_GT(bucket.parts[2].part.pieces[0].offset, std::uint64_t{UINT32_MAX});
}

TEST(Bucket, EveryParameterKeepsItsShare) {
  const Segment segments[] = {{.elements = untouched(1), .id = 1},
                              {.elements = untouched(250), .id = 2},
                              {.elements = untouched(10001), .id = 3},
                              {.elements = untouched(0), .id = 4}};
  Parameters parameters;
  const auto topk = compress::make_compressor("topk:0.01");
  const Bucket bucket =
      plan_bucket(segments, {.schedule = "gather", .min_bytes = 0}, 4, *topk, parameters);
  ASSERT_EQ(bucket.parts.size(), 1U);
  const compress::Part& part = bucket.parts[0].part;
  ASSERT_EQ(part.pieces.size(), 3U);
  EXPECT_EQ(part.pieces[0].k, 1U);
  EXPECT_EQ(part.pieces[1].k, 3U);
  EXPECT_EQ(part.pieces[2].k, 101U);
  EXPECT_EQ(part.k, 105U);
  EXPECT_EQ(part.pieces[2].base, 251U);
}

TEST(Compressors, KeptIsTheCeilingOfTheDecimalProduct) {
  // 0.07 * 100 and 0.29 * 100 are a little over and a little under the integer in binary.
  EXPECT_EQ(compress::make_compressor("topk:0.07")->kept(100), 7U);
  EXPECT_EQ(compress::make_compressor("topk:0.29")->kept(100), 29U);
  EXPECT_EQ(compress::make_compressor("topk:0.01")->kept(101), 2U);
  EXPECT_EQ(compress::make_compressor("topk:0.000001")->kept(5), 1U);
  EXPECT_EQ(compress::make_compressor("topk:1")->kept(5), 5U);
  EXPECT_EQ(compress::make_compressor("topk:0.5")->kept(0), 0U);
}

}  // namespace
}  // namespace winnow::comm
