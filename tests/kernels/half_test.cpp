// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/arithmetic/half.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/answers.hpp"
#include "tests/kernels/cases/elementwise_cases.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {
namespace {

/// All numbers of 16 bits.
std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> all(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  return all;
}

/// The value of a binary16's bits, by the definition.
double fp16_value(std::uint16_t half) {
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  const int exponent = half >> 10 & 31;
  const double fraction = (half & 1023) / 1024.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -14);
  return sign * std::ldexp(1 + fraction, exponent - 15);
}

TEST(Half, WidensEveryNumberExactly) {
  const auto halves = all_halves();
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    std::vector<float> cpu(halves.size()), reference(halves.size());
    kernels::widen({.threads = 3}, type, halves, cpu);
    kernels::widen({.place = lab::kReference}, type, halves, reference);
    EXPECT_TRUE(same_bits(cpu, reference));
    for (std::size_t i = 0; type == ElementType::fp16 && i < halves.size(); ++i) {
      const auto half = halves[i];
      if ((half & 0x7c00) != 0x7c00) {
        EXPECT_EQ(cpu[i], fp16_value(half)) << i;
      } else {
        EXPECT_EQ(std::isnan(cpu[i]), (half & 0x3ff) != 0) << i;
        EXPECT_EQ(std::isinf(cpu[i]), (half & 0x3ff) == 0) << i;
      }
      EXPECT_EQ(std::signbit(cpu[i]), half >= 0x8000) << i;
    }
  }
}

TEST(Half, NarrowsBackToTheSame) {
  const auto halves = all_halves();
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    std::vector<float> wide(halves.size());
    std::vector<std::uint16_t> back(halves.size());
    kernels::widen({}, type, halves, wide);
    kernels::narrow({}, type, wide, back);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      if (std::isnan(wide[i])) {
        EXPECT_TRUE(std::isnan(type == ElementType::bf16 ? kernels::widen_bf16(back[i])
                                                         : kernels::widen_fp16(back[i])));
      } else {
        EXPECT_EQ(back[i], halves[i]);
      }
    }
  }
}

TEST(Half, KeepsRestsAsTheReference) {
  expect_keep_rest_equals_reference(
      {.widen = {}, .narrow = {}, .keep_rest = [](kernels::RestJob job) {
         std::uint32_t too_large = 0;
         job.too_large = &too_large;
         kernels::keep_rest({.threads = 3}, job);
         return too_large != 0;
       }});
}

// What was given is delivered or kept: exactly below 2^29 of fp16, else to a float32's rounding.
TEST(Half, RestsAreWhatIsMissing) {
  for (const float sum : {65520.0F, -70'000.5F, 1'000'000.25F, -0x1.fffffep28F, 0x1.2345p100F}) {
    for (const Place place : {Place::host, lab::kReference}) {
      std::vector<float> sums = {sum}, residual = {0};
      std::uint32_t too_large = 0;
      kernels::keep_rest(
          {.place = place},
          {.type = ElementType::fp16, .sums = sums, .residual = residual, .too_large = &too_large});
      EXPECT_EQ(too_large, 1U);
      EXPECT_EQ(std::abs(sums[0]), 65504);
      const double both = static_cast<double>(sums[0]) + static_cast<double>(residual[0]);
      const double rounding = std::abs(sum) < 0x1p29F ? 0 : std::abs(sum) * 0x1p-24;
      EXPECT_NEAR(both, sum, rounding);
    }
  }
}

// Narrowing picks the nearer neighbour, and the even one if the number lies in the middle.
TEST(Half, NarrowsToTheNearestEven) {
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    const std::uint16_t infinity = type == ElementType::bf16 ? 0x7f80 : 0x7c00;
    for (std::uint16_t half = 0; half + 1 < infinity; ++half) {
      const std::vector<std::uint16_t> pair = {half, static_cast<std::uint16_t>(half + 1)};
      std::vector<float> ends(2);
      kernels::widen({}, type, pair, ends);
      const float middle = ends[0] + (ends[1] - ends[0]) / 2;  // exact: a float32 has more bits
      const std::vector<float> x = {std::nextafter(middle, 0.0f), middle,
                                    std::nextafter(middle, ends[1]), -middle};
      std::vector<std::uint16_t> got(4);
      kernels::narrow({}, type, x, got);
      const std::uint16_t even = half % 2 == 0 ? pair[0] : pair[1];
      if (middle != ends[0] && std::nextafter(middle, 0.0f) > ends[0]) {
        EXPECT_EQ(got[0], pair[0]) << half;
      }
      EXPECT_EQ(got[1], even) << half;
      if (std::nextafter(middle, ends[1]) < ends[1]) {
        EXPECT_EQ(got[2], pair[1]) << half;
      }
      EXPECT_EQ(got[3], even | 0x8000) << half;
    }
  }
}

TEST(Half, OverflowsWhereItSaysSo) {
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    const float limit = type == ElementType::bf16 ? kernels::kBf16Overflow : kernels::kFp16Overflow;
    const std::vector<float> below(100, std::nextafter(limit, 0.0f)), at(100, -limit);
    for (const Place place : {Place::host, lab::kReference}) {
      std::vector<float> sums = below;
      EXPECT_TRUE(clip({.place = place}, type, sums));
      EXPECT_EQ(sums, below);
      sums = at;
      EXPECT_FALSE(clip({.place = place}, type, sums));
      const float largest = type == ElementType::bf16 ? 0x1.fep127F : 65504;
      EXPECT_EQ(sums, std::vector<float>(100, -largest));
      sums = {1, std::nanf("")};
      EXPECT_TRUE(clip({.place = place}, type, sums));
      EXPECT_TRUE(std::isnan(sums[1]));
    }
    std::vector<std::uint16_t> got(100);
    kernels::narrow({}, type, at, got);
    EXPECT_EQ(got[7], type == ElementType::bf16 ? 0xff80 : 0xfc00);
    kernels::narrow({}, type, below, got);
    EXPECT_EQ(got[7], type == ElementType::bf16 ? 0x7f7f : 0x7bff);
  }
}

TEST(Half, EqualsReferenceOnAnyInput) {
  for (const Input input : kInputs) {
    for (const std::size_t count : {1u, 63u, 4097u, 20000u}) {
      const auto x = make_input(input, count, 5);
      for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
        std::vector<std::uint16_t> cpu(count), reference(count);
        kernels::narrow({.threads = 3}, type, x, cpu);
        kernels::narrow({.place = lab::kReference}, type, x, reference);
        EXPECT_EQ(cpu, reference) << input;
      }
    }
  }
}

TEST(Half, RefusesWrongUse) {
  std::vector<float> wide(3);
  std::vector<std::uint16_t> halves(4);
  EXPECT_THROW(kernels::widen({}, ElementType::bf16, halves, wide), UsageError);
  EXPECT_THROW(kernels::narrow({}, ElementType::fp16, wide, halves), UsageError);
  EXPECT_THROW(kernels::widen({}, ElementType::float32, std::span(halves).first(3), wide),
               UsageError);
  EXPECT_THROW((void)clip({}, ElementType::float32, wide), UsageError);
  std::uint32_t word = 0;
  EXPECT_THROW(
      kernels::keep_rest({}, {.type = ElementType::fp16, .sums = wide, .too_large = &word}),
      UsageError);
  EXPECT_THROW(
      kernels::keep_rest({}, {.type = ElementType::fp16, .sums = {}, .too_large = nullptr}),
      UsageError);
}

}  // namespace
}  // namespace winnow::tests
