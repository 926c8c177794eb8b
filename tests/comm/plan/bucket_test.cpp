// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/bucket.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <winnow/error.hpp>

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
  ParameterStates parameters;
  const auto none = compress::make_compressor("none");
  const Bucket bucket = plan_bucket(bucket_id(segments, ReduceOp::sum), segments,
                                    {.compressor = "none"}, {4, 0}, *none, parameters);
  EXPECT_EQ(bucket.count, kCount + 100);
  ASSERT_EQ(bucket.parts.size(), 3U);
  std::uint64_t offset = 0;
  for (const BucketPart& part : bucket.parts) {
    EXPECT_LE(part.part.count, Options::kMaxPart);
    const compress::Piece& piece = part.part.pieces.front();
    EXPECT_EQ(piece.offset, offset);
    EXPECT_EQ(piece.base, 0U);
    EXPECT_EQ(piece.elements.floats().data() - segments[0].elements.floats().data(),
              static_cast<std::ptrdiff_t>(offset));
    offset += piece.elements.size();
  }
  EXPECT_EQ(offset, kCount);
  EXPECT_EQ(bucket.parts.back().part.pieces.back().elements.size(), 100U);
  EXPECT_GT(bucket.parts[1].part.pieces[0].offset, std::uint64_t{UINT32_MAX} - 64);
  EXPECT_GT(bucket.parts[2].part.pieces[0].offset, std::uint64_t{UINT32_MAX});
}

// Nothing is done for each of so many messages before they are counted.
TEST(Bucket, MoreMessagesThanHaveNumbers) {
  for (const char* schedule : {"auto", "dense", "gather", "balanced"}) {
    const Segment segments[] = {{.elements = untouched(1), .id = 1},
                                {.elements = untouched(std::uint64_t{1} << 24), .id = 2},
                                {.elements = untouched(64), .id = 3, .exempt = true}};
    ParameterStates parameters;
    const auto topk = compress::make_compressor("topk:0.01");
    const auto plan = [&](std::uint64_t max_part) {
      return plan_bucket(bucket_id(segments, ReduceOp::sum), segments,
                         {.schedule = schedule, .min_bytes = 0, .max_part = max_part}, {4, 1},
                         *topk, parameters);
    };
    EXPECT_THROW((void)plan(64), UsageError);
    EXPECT_TRUE(parameters.empty());
    EXPECT_EQ(plan(512).count, (std::uint64_t{1} << 24) + 65);
  }
}

TEST(Bucket, EveryParameterKeepsItsShare) {
  const Segment segments[] = {{.elements = untouched(1), .id = 1},
                              {.elements = untouched(250), .id = 2},
                              {.elements = untouched(10001), .id = 3},
                              {.elements = untouched(0), .id = 4}};
  ParameterStates parameters;
  const auto topk = compress::make_compressor("topk:0.01");
  const Bucket bucket =
      plan_bucket(bucket_id(segments, ReduceOp::sum), segments,
                  {.schedule = "gather", .min_bytes = 0}, {4, 1}, *topk, parameters);
  ASSERT_EQ(bucket.parts.size(), 1U);
  const compress::Part& part = bucket.parts[0].part;
  ASSERT_EQ(part.pieces.size(), 3U);
  EXPECT_EQ(part.pieces[0].k, 1U);
  EXPECT_EQ(part.pieces[1].k, 3U);
  EXPECT_EQ(part.pieces[2].k, 101U);
  EXPECT_EQ(part.k, 105U);
  EXPECT_EQ(part.pieces[2].base, 320U);  // pieces begin at multiples of 64
}

// Every element has an owner, who keeps its share of the sums.
TEST(Bucket, OwnersShareEveryElement) {
  constexpr int kRanks = 3;
  const Segment segments[] = {{.elements = untouched(100), .id = 1},
                              {.elements = untouched(10001), .id = 2}};
  const auto topk = compress::make_compressor("topk:0.01");
  std::uint64_t owned = 0, kept = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    ParameterStates parameters;
    const Bucket bucket =
        plan_bucket(bucket_id(segments, ReduceOp::sum), segments,
                    {.schedule = "balanced", .min_bytes = 0}, {kRanks, rank}, *topk, parameters);
    const compress::Part& part = bucket.parts[0].part;
    EXPECT_EQ(part.count, 128U + 10001U);
    EXPECT_EQ(part.most_k, 1U + 101U);
    ASSERT_EQ(part.owner_k.size(), 3U);
    std::uint64_t own_k = 0;
    for (const compress::Piece& piece : part.pieces) {
      owned += piece.own_count;
      own_k += piece.own_k;
      EXPECT_EQ(piece.own_k, topk->kept(piece.own_count));
      EXPECT_EQ(piece.k, topk->kept(piece.elements.size() - piece.own_count));
      EXPECT_LE(piece.own_begin + piece.own_count,
                part.partition.local_count(static_cast<std::uint32_t>(rank)));
    }
    EXPECT_EQ(part.owner_k[static_cast<std::size_t>(rank)], own_k);
    kept += own_k;
  }
  EXPECT_EQ(owned, 10101U);
  EXPECT_GE(kept, 102U);
  EXPECT_LE(kept, 106U);  // rounded up once for each parameter and owner
}

// Of its sums an owner keeps the share that is named; a warm-up that sends more keeps as much.
TEST(Bucket, OwnersKeepTheirShareOfTheSums) {
  const auto topk = compress::make_compressor("topk:0.01:sums=0.1:warmup=3");
  EXPECT_EQ(topk->kept(1000), 10U);
  EXPECT_EQ(topk->kept_sums(1000), 100U);
  EXPECT_EQ(topk->at_stage(0).kept_sums(1000), 250U);
  EXPECT_EQ(topk->at_stage(1).kept(1000), 63U);
  EXPECT_EQ(topk->at_stage(1).kept_sums(1000), 100U);
  const Segment segments[] = {{.elements = untouched(64'000), .id = 1}};
  ParameterStates parameters;
  const Bucket bucket = plan_bucket(bucket_id(segments, ReduceOp::sum), segments,
                                    {.schedule = "balanced", .min_bytes = 0}, {4, 1},
                                    *compress::make_compressor("topk:0.01:sums=0.1"), parameters);
  const compress::Part& part = bucket.parts[0].part;
  EXPECT_EQ(part.k, 480U);
  for (const std::uint64_t k : part.owner_k) EXPECT_EQ(k, 1600U);
}

TEST(Compressors, NamesAreCanonical) {
  const auto name = [](std::string_view text) { return compress::make_compressor(text)->name(); };
  EXPECT_EQ(name("none"), "none");
  EXPECT_EQ(name("float32"), "none");
  EXPECT_EQ(name("none,int8"), "int8");
  EXPECT_EQ(name("topk:0.010,float32"), "topk:0.01");
  EXPECT_EQ(name("topk:0.01,int8:block=256"), "topk:0.01,int8");
  EXPECT_EQ(name("topk:0.01,int4:block=64:stochastic,eliasfano"),
            "topk:0.01,int4:block=64:stochastic,eliasfano");
  EXPECT_EQ(name("topk:0.5,bitmap"), "topk:0.5,bitmap");
  EXPECT_EQ(name("topk:0.01:sums=0.030"), "topk:0.01:sums=0.03");
  EXPECT_EQ(name("topk:0.03:sums=0.03,int4"), "topk:0.03,int4");
  EXPECT_EQ(name("sign:block=1024"), "sign:block=1024");
  EXPECT_EQ(name("threshold"), "threshold:0");
  EXPECT_EQ(name("threshold:0.010,int8"), "threshold:0.01,int8");
}

TEST(Compressors, WrongWordsAreNamed) {
  const auto error = [](std::string_view text) -> std::string {
    try {
      compress::make_compressor(text);
    } catch (const UsageError& refused) {
      return refused.what();
    }
    return {};
  };
  EXPECT_NE(error("topk:0.01,int9").find("did you mean 'int8'"), std::string::npos);
  EXPECT_NE(error("topk:0.01,bitmat").find("did you mean 'bitmap'"), std::string::npos);
  EXPECT_NE(error("int8:block=100").find("power of two"), std::string::npos);
  EXPECT_NE(error("int8:block=32").find("from 64 to 65536"), std::string::npos);
  EXPECT_NE(error("bf16:block=128").find("no scales"), std::string::npos);
  EXPECT_NE(error("sign:stochastic").find("nearest only"), std::string::npos);
  EXPECT_NE(error("int8:random").find("block=N or stochastic"), std::string::npos);
  EXPECT_NE(error("int8,topk:0.1").find("has no place there"), std::string::npos);
  EXPECT_NE(error("int8,int4").find("has no place there"), std::string::npos);
  EXPECT_NE(error("none,bitmap").find("every element"), std::string::npos);
  EXPECT_NE(error("topk:0.1,bitmap:3").find("takes no argument"), std::string::npos);
  EXPECT_NE(error("").find("the compressor is empty"), std::string::npos);
  for (const char* wrong : {"threshold:-1", "threshold:inf", "threshold:nan", "threshold:1x"}) {
    EXPECT_NE(error(wrong).find("0 or more"), std::string::npos) << wrong;
  }
  for (const char* wrong : {"topk:0.01:sums=0", "topk:0.01:sums=1.5",
                            "topk:0.01:sums=", "topk:0.01:sums=0.1:sums=0.1", "topk:sums=0.1"}) {
    EXPECT_NE(error(wrong).find("perhaps the share that owners keep"), std::string::npos) << wrong;
  }
  EXPECT_NE(error("randomk:0.01:sums=0.1").find("density"), std::string::npos);
  EXPECT_NE(error("threshold,sign").find("no sign values: they are never 0"), std::string::npos);
  EXPECT_NE(error("threshold,int2").find("no int2 values: they are never 0"), std::string::npos);
  for (const char* wrong :
       {"mean", "none,mean", "topk:1,mean", "randomk:0.1,mean", "blocktopk:64/64,mean"}) {
    EXPECT_NE(error(wrong).find("values of both signs"), std::string::npos) << wrong;
  }
  EXPECT_NE(error("threshold,mean").find("no mean values: they are never 0"), std::string::npos);
  EXPECT_NE(error("topk:0.1,mean:stochastic").find("nearest only"), std::string::npos);
  EXPECT_NE(error("treshold").find("'threshold'"), std::string::npos);
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
