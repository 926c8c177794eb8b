// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/arithmetic/philox.hpp"
#include "kernels/value_coding.hpp"
#include "tests/kernels/answers.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"
#include "tests/kernels/value_formats.hpp"

// Checks what codings decode, and their errors, as numbers. The checks run on the host; all other
// places give the host's bits.

namespace winnow::tests {
namespace {

using kernels::RandomKey;
using kernels::Rounding;
using kernels::ValueFormat;
namespace values = kernels::values;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr RandomKey kKey{.seed = 0x123456789abcdef0, .call = 9, .rank = 3, .stage = 70};

struct Outcome {
  Coded coded;
  std::vector<float> error, decoded;
};

Outcome run(const Exec& exec, const ValueFormat& format, const std::vector<float>& values,
            const RandomKey& key = kKey) {
  Outcome out{Coded(format, values.size()), values, std::vector<float>(values.size())};
  quantize(exec, format, key, out.error, out.coded.span());
  dequantize(exec, format, values.size(), out.coded.span(), 0, out.decoded);
  return out;
}

float scale_of(Outcome& out, std::size_t block = 0) {
  float scale;
  std::memcpy(&scale, out.coded.span().data() + block * sizeof scale, sizeof scale);
  return scale;
}

/// The codings whose scales map the largest magnitude to a level, and that level.
std::vector<std::pair<std::string_view, float>> codings_by_levels() {
  std::vector<std::pair<std::string_view, float>> codings;
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    kernels::visit_coding(coding, [&](auto line) {
      if constexpr (requires { line.scale_of(1.0f); }) {
        codings.emplace_back(coding.name, std::round(1 / line.scale_of(1.0f)));
      }
    });
  }
  return codings;
}

/// error = fl(value - decoded), finite, and within a step (stochastic) or half of one (nearest).
TEST(Rounding, ErrorIsWhatTheCodeMissesAndWithinAStep) {
  for (const ValueFormat& format : all_formats()) {
    SCOPED_TRACE(name_of(format));
    const bool nearest = format.rounding == Rounding::nearest;
    for (const Values kind : kValues) {
      std::vector<float> values = make_values(kind, 4097, 2);
      for (float& x : values) {
        if (format.coding->one_sign) x = -std::fabs(x);
      }
      Outcome out = run({}, format, values);
      std::size_t wrong = 0, beyond = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float x = values[i], y = out.decoded[i];
        wrong += !std::isfinite(y) || !std::isfinite(out.error[i]) || out.error[i] != x - y;
        double step = 0;
        switch (format.coding->id) {
          case values::Float32::kLine.id:
            wrong += std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(y);
            wrong += std::bit_cast<std::uint32_t>(out.error[i]) != 0;
            break;
          case values::Bf16::kLine.id:
            step = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
            break;
          case values::Fp16::kLine.id:
            if (std::fabs(x) > 65504) {
              wrong += y != std::copysign(65504.0f, x);
              continue;
            }
            step = std::ldexp(1.0, std::max(std::ilogb(x), -14) - 10);
            break;
          case values::Sign::kLine.id:
            EXPECT_EQ(std::fabs(y), scale_of(out, i / format.block));
            EXPECT_EQ(std::signbit(y), std::signbit(x));
            continue;
          case values::Mean::kLine.id:
            EXPECT_EQ(y, scale_of(out, i / format.block));
            continue;
          case values::Int2::kLine.id: {
            const float scale = scale_of(out, i / format.block);
            EXPECT_EQ(std::signbit(y), std::signbit(x));
            EXPECT_TRUE(std::fabs(y) == scale || std::fabs(y) == 3 * scale);
            const float other = std::fabs(y) == scale ? 3 * scale : scale;
            beyond += std::fabs(std::fabs(x) - std::fabs(y)) >
                      std::fabs(std::fabs(x) - other) + 0x1p-20f * scale;
            continue;
          }
          default: {
            const float scale = scale_of(out, i / format.block);
            if (scale == 0) {  // everything stays in the error
              wrong += y != 0 || out.error[i] != x;
              continue;
            }
            step = scale;
            if (format.coding->name == "fp8") {
              step *= std::ldexp(1.0, std::max(std::ilogb(x / scale), -6) - 3);
            }
          }
        }
        // In double: rounding x * inverse and the decoded value adds less than 2^-14 of a step.
        const double error = std::fabs(static_cast<double>(x) - static_cast<double>(y));
        const bool saturated = format.coding->name == "bf16" && std::fabs(x) > 0x1.fep127f;
        beyond += !saturated && error > step * (nearest ? 0.5 : 1.0) * (1 + 0x1p-14);
      }
      EXPECT_EQ(wrong, 0u) << static_cast<int>(kind);
      EXPECT_EQ(beyond, 0u) << static_cast<int>(kind);
    }
  }
}

#ifdef __FLT16_MAX__
/// The decoded values are those of the compiler's own conversion.
TEST(Rounding, Fp16IsBinary16) {
  std::vector<float> values = make_values(Values::any_bits, 100'000, 3);
  for (std::size_t i = 0; i < values.size(); ++i) {  // most of them in range
    if (i % 8 != 0)
      values[i] = std::ldexp(std::frexp(values[i], std::array<int, 1>{}.data()),
                             static_cast<int>(i % 44) - 27);
  }
  const Outcome out = run({}, make_format("fp16"), values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float limited = std::clamp(values[i], -65504.0f, 65504.0f);
    ASSERT_EQ(out.decoded[i], static_cast<float>(static_cast<_Float16>(limited))) << values[i];
  }
}
#endif

TEST(Rounding, EveryFiniteCodeOf16BitsIsAFixedPoint) {
  for (const auto& [name, finite] : {std::pair{"bf16", 0x7f80U}, {"fp16", 0x7c00U}}) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      const ValueFormat format = make_format(name, rounding);
      Coded coded(format, 2 * finite);
      for (std::uint32_t i = 0; i < 2 * finite; ++i) {
        const auto code = static_cast<std::uint16_t>(i / 2 | i % 2 << 15);
        std::memcpy(coded.span().data() + 2 * i, &code, 2);
      }
      std::vector<float> values(2 * finite);
      dequantize({}, format, values.size(), coded.span(), 0, values);
      const Outcome out = run({}, format, values);
      EXPECT_TRUE(out.coded == coded);
    }
  }
}

/// A code as the specification of E4M3 has it.
float e4m3(std::uint32_t code) {
  const int exponent = static_cast<int>(code >> 3 & 0xf), fraction = static_cast<int>(code & 7);
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                   : std::ldexp(static_cast<float>(8 + fraction), exponent - 7 - 3);
  return (code & 0x80) != 0 ? -size : size;
}

/// The magnitude next to 448 whose block has the scale 1.
float largest_of_scale_1() {
  for (float largest = 448;; largest = std::nextafter(largest, kLargest)) {
    Outcome out = run({}, make_format("fp8"), {largest});
    if (scale_of(out) >= 1) return largest;
  }
}

TEST(Rounding, Fp8IsE4M3TimesTheScale) {
  const float largest = largest_of_scale_1();
  EXPECT_LT(largest, 448.001f);
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    std::vector<float> values{largest}, expected{448};
    for (std::uint32_t code = 0; code < 256; ++code) {
      if ((code & 0x7f) == 0x7f) continue;
      values.push_back(e4m3(code));
      expected.push_back(e4m3(code));
    }
    Outcome out = run({}, make_format("fp8", rounding), values);
    EXPECT_EQ(scale_of(out), 1);
    EXPECT_EQ(bits_of(out.decoded), bits_of(expected));
    for (const float factor : {0x1p-100f, 0x1p110f}) {
      std::vector<float> scaled = values, decoded = expected;
      for (float& x : scaled) x *= factor;
      for (float& x : decoded) x *= factor;
      EXPECT_EQ(bits_of(run({}, make_format("fp8", rounding), scaled).decoded), bits_of(decoded));
    }
  }
}

TEST(Rounding, RoundsTiesToEven) {
  const auto decoded = [](std::string_view name, const std::vector<float>& values) {
    return run({}, make_format(name), values).decoded;
  };
  EXPECT_EQ(decoded("bf16", {1 + 0x1p-8f, 1 + 0x3p-8f, -1 - 0x1p-8f}),
            (std::vector<float>{1, 1 + 0x1p-6f, -1}));
  EXPECT_EQ(decoded("fp16", {1 + 0x1p-11f, 1 + 0x3p-11f, 0x1p-25f, 0x3p-25f, -0x1p-25f}),
            (std::vector<float>{1, 1 + 0x1p-9f, 0, 0x1p-23f, 0}));
  EXPECT_EQ(decoded("fp8", {largest_of_scale_1(), 1 + 0x1p-4f, 1 + 0x3p-4f, 0x1p-10f, 0x3p-10f,
                            -0x1p-10f, 0xfp-10f}),
            (std::vector<float>{448, 1, 1 + 0x1p-2f, 0, 0x1p-8f, 0, 0x1p-6f}));
}

TEST(Rounding, SaturatesAtTheLargestFiniteNumber) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    const std::vector<float> values{kLargest, -kLargest, 65504, 65519, -65520, 65536};
    EXPECT_EQ(run({}, make_format("fp16", rounding), values).decoded,
              (std::vector<float>{65504, -65504, 65504, 65504, -65504, 65504}));
    EXPECT_EQ(run({}, make_format("bf16", rounding), {kLargest, -kLargest}).decoded,
              (std::vector<float>{0x1.fep127f, -0x1.fep127f}));
  }
}

TEST(Rounding, LevelsReachTheLargestMagnitude) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    for (const auto& [name, levels] : codings_by_levels()) {
      for (const float largest : {kLargest, 1.0f, 3.0f, 0x1.fffffep-1f, 1e-30f}) {
        Outcome out = run({}, make_format(name, rounding), {largest, -largest, 0, largest / 3});
        EXPECT_NEAR(scale_of(out) / largest * levels, 1, 0x1p-22);
        EXPECT_EQ(out.decoded[0], levels * scale_of(out));
        EXPECT_TRUE(std::isfinite(out.decoded[0]));
        EXPECT_EQ(out.decoded[2], 0);
      }
    }
  }
}

TEST(Rounding, TinyScalesLeaveEverythingInTheError) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    for (const auto& [name, levels] : codings_by_levels()) {
      for (const float largest : {0x1p-149f, 0x1p-126f, 0x1.8p-124f}) {
        const std::vector<float> values{largest, -largest, largest / 2};
        Outcome out = run({}, make_format(name, rounding), values);
        EXPECT_EQ(std::bit_cast<std::uint32_t>(scale_of(out)), 0u);
        EXPECT_EQ(out.decoded, std::vector<float>(3));
        EXPECT_EQ(bits_of(out.error), bits_of(values));
      }
    }
  }
}

TEST(Rounding, SignTakesTheMeanOfEachBlock) {
  std::vector<float> values(512 + 3, -2);
  values[512] = 1;
  values[513] = -0.0f;
  values[514] = -8;
  Outcome out = run({}, make_format("sign"), values);
  EXPECT_EQ(scale_of(out, 0), 2);
  EXPECT_EQ(scale_of(out, 1), 3);
  EXPECT_EQ(out.decoded[0], -2);
  EXPECT_EQ(out.decoded[512], 3);
  EXPECT_EQ(out.decoded[513], -3);
  EXPECT_EQ(out.error[514], -5);
  Outcome largest = run({}, make_format("sign"), std::vector<float>(5, kLargest));
  EXPECT_NEAR(scale_of(largest) / kLargest, 1, 0x1p-22);
  Outcome spread = run({}, make_format("sign"), {kLargest, kLargest, 0, 0});
  EXPECT_EQ(scale_of(spread), kLargest / 2);
}

TEST(Rounding, Int2TakesAShareOfTheMeanOfEachBlock) {
  std::vector<float> values(512 + 4, -2);
  values[512] = 1;
  values[513] = -0.0f;
  values[514] = 10;
  values[515] = -5;
  Outcome out = run({}, make_format("int2"), values);
  EXPECT_EQ(scale_of(out, 0), 2 * 0.9f);
  EXPECT_EQ(scale_of(out, 1), 4 * 0.9f);
  EXPECT_EQ(out.decoded[0], -2 * 0.9f);
  EXPECT_EQ(std::vector<float>(out.decoded.begin() + 512, out.decoded.end()),
            (std::vector<float>{4 * 0.9f, -4 * 0.9f, 3 * (4 * 0.9f), -4 * 0.9f}));
  EXPECT_EQ(out.error[514], 10 - 3 * (4 * 0.9f));
  Outcome largest = run({}, make_format("int2"), std::vector<float>(5, -kLargest));
  EXPECT_EQ(scale_of(largest), kLargest / 3);
  EXPECT_EQ(largest.decoded, std::vector<float>(5, -kLargest));
  Outcome tiny = run({}, make_format("int2"), {0x1p-127f, -0x1p-126f});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(scale_of(tiny)), 0u);
  EXPECT_EQ(tiny.error, (std::vector<float>{0x1p-127f, -0x1p-126f}));
}

TEST(Rounding, MeanHasTheSignOfTheValues) {
  std::vector<float> values(512 + 3, -2);
  values[512] = 1;
  values[513] = 0;
  values[514] = 8;
  Outcome out = run({}, make_format("mean"), values);
  EXPECT_EQ(scale_of(out, 0), -2);
  EXPECT_EQ(scale_of(out, 1), 3);
  EXPECT_EQ(std::vector<float>(out.decoded.begin() + 511, out.decoded.end()),
            (std::vector<float>{-2, 3, 3, 3}));
  EXPECT_EQ(std::vector<float>(out.error.begin() + 511, out.error.end()),
            (std::vector<float>{0, -2, -3, 5}));
  for (const float sign : {1.0f, -1.0f}) {
    Outcome largest = run({}, make_format("mean"), std::vector<float>(5, sign * kLargest));
    EXPECT_NEAR(scale_of(largest) / kLargest, sign, 0x1p-22);
    Outcome spread = run({}, make_format("mean"), {sign * kLargest, 0, sign * kLargest, 0});
    EXPECT_EQ(scale_of(spread), sign * (kLargest / 2));
  }
}

/// A block's largest value times the inverse lies a little above the highest level. So among many
/// values some random numbers carry it to the next level, and the coding must stop them.
TEST(Rounding, StochasticRoundingStaysWithinTheLevels) {
  constexpr std::size_t kCount = 2'000'000;
  for (const auto& [name, levels] : codings_by_levels()) {
    const ValueFormat format = make_format(name, Rounding::stochastic);
    const float step = name == "fp8" ? 32 : 1;
    const std::uint32_t bits = name == "fp8" ? 20 : 24;  // of a random word
    std::size_t carried = 0;
    for (const float x : {1.0f, -1.0f}) {
      for_each_target([&] {
        Outcome out = run({}, format, std::vector<float>(kCount, x));
        EXPECT_TRUE(are_sound_values({}, format, kCount, out.coded.span()));
        const float scale = scale_of(out);
        const float level = x * (1 / scale);
        for (std::size_t v = 0; x > 0 && v < kCount; ++v) {
          const std::uint32_t word = kernels::random_word(kKey, v) >> (32 - bits);
          const float u = std::ldexp(static_cast<float>(word), -static_cast<int>(bits));
          if (level + u * step < levels + step) continue;
          ++carried;
          EXPECT_EQ(out.decoded[v], levels * scale);
        }
      });
    }
    EXPECT_GT(carried, 0u) << format.coding->name;
  }
}

/// The mean of the decoded values over many calls is the value, within five standard deviations.
TEST(Rounding, StochasticRoundingIsUnbiased) {
  constexpr std::size_t kCount = 256, kCalls = 4000;
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    if (!coding.stochastic) continue;
    const ValueFormat format = make_format(coding.name, Rounding::stochastic);
    std::vector<float> values = make_values(Values::normal, kCount, 5);
    if (coding.name == "fp8") {
      for (std::size_t i = 0; i < kCount; i += 2) values[i] *= 0x1p-14f;  // subnormal codes
    }
    if (coding.name == "fp16") {
      for (std::size_t i = 0; i < kCount; i += 2) values[i] *= 0x1p-22f;  // subnormal codes
    }
    std::vector<double> mean(kCount), low(kCount, kLargest), high(kCount, -kLargest);
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      const Outcome out = run({}, format, values, {.seed = 1, .call = call});
      for (std::size_t i = 0; i < kCount; ++i) {
        const double y = static_cast<double>(out.decoded[i]);
        mean[i] += y / kCalls;
        low[i] = std::min(low[i], y);
        high[i] = std::max(high[i], y);
      }
    }
    std::size_t biased = 0, constant = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      // One decoded value deviates by a step times sqrt(p (1 - p)) <= 1/2. The second term allows
      // for the largest value of a block, which the coding clamps.
      const double step = high[i] - low[i];
      const double bound = 2.5 * step / std::sqrt(static_cast<double>(kCalls)) +
                           1e-6 * std::fabs(static_cast<double>(values[i]));
      biased += std::fabs(mean[i] - static_cast<double>(values[i])) > bound;
      constant += step == 0;
    }
    EXPECT_EQ(biased, 0u) << format.coding->name;
    EXPECT_LE(constant, kCount / 16) << format.coding->name;
  }
}

TEST(Rounding, RandomNumbersDependOnRankCallStageAndSeed) {
  const ValueFormat format = make_format("int4", Rounding::stochastic);
  const std::vector<float> values = make_values(Values::normal, 1000, 6);
  const Outcome first = run({}, format, values);
  EXPECT_TRUE(run({}, format, values).coded == first.coded);
  for (const int field : {0, 1, 2, 3}) {
    RandomKey key = kKey;
    if (field == 0) ++key.seed;
    if (field == 1) ++key.call;
    if (field == 2) ++key.rank;
    if (field == 3) ++key.stage;
    EXPECT_FALSE(run({}, format, values, key).coded == first.coded) << field;
  }
}

}  // namespace
}  // namespace winnow::tests
