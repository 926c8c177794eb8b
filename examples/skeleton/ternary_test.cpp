// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/skeleton/ternary.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/values/body.hpp"
#include "kernels/cpu/values/plain_body.hpp"
#include "tests/kernels/answers.hpp"
#include "tests/kernels/targets.hpp"
#include "tests/kernels/value_formats.hpp"

// A coding of the table is checked by tests/kernels/value_coding_test.cpp and by the laws, without
// a line of its own. This one is in no table, so its test calls its bodies.

namespace winnow::tests {
namespace {

using kernels::cpu::coding_body;
using kernels::cpu::CodingBody;
using kernels::cpu::kUnit;
using kernels::cpu::plain_body;
using kernels::values::Ternary;

constexpr std::size_t kUnits = 16, kCount = kUnits * kUnit, kBytes = kCount * 2 / 8;

struct Coded {
  std::vector<std::byte> codes = std::vector<std::byte>(kBytes);
  std::vector<float> error = std::vector<float>(kCount), decoded = std::vector<float>(kCount);
};

Coded code(const CodingBody& body, bool stochastic, const std::vector<float>& values) {
  Coded coded;
  const float scale = body.scale(values.data(), kCount);
  (stochastic ? body.stochastic : body.nearest)({.x = values.data(),
                                                 .error = coded.error.data(),
                                                 .units = kUnits,
                                                 .first = 0,
                                                 .codes = coded.codes.data(),
                                                 .scales = &scale,
                                                 .block = kCount,
                                                 .key = {.seed = 7, .rank = 1}});
  body.decode(coded.codes.data(), scale, kUnits, coded.decoded.data());
  return coded;
}

TEST(Ternary, LanesHaveTheBitsOfTheScalarBody) {
  const CodingBody plain = plain_body<Ternary>();
  for (const Values kind : kValues) {
    const std::vector<float> values = make_values(kind, kCount, 1);
    for (const bool stochastic : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << static_cast<int>(kind) << (stochastic ? " stochastic" : ""));
      const Coded expected = code(plain, stochastic, values);
      for_each_target([&] {
        const Coded coded = code(coding_body<Ternary>(), stochastic, values);
        EXPECT_EQ(coded.codes, expected.codes);
        EXPECT_TRUE(same_bits(coded.error, expected.error));
        EXPECT_TRUE(same_bits(coded.decoded, expected.decoded));
        EXPECT_TRUE(coding_body<Ternary>().valid(coded.codes.data(), kBytes));
      });
    }
  }
}

TEST(Ternary, WhatTheCodeMissesIsTheError) {
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 9) - 4;  // -4 to 4
  const Coded coded = code(coding_body<Ternary>(), false, values);
  const float scale = Ternary::scale_of(4);
  for (std::size_t i = 0; i < kCount; ++i) {
    const float level = values[i] >= 2 ? scale : values[i] <= -2 ? -scale : 0;
    EXPECT_EQ(coded.decoded[i], level) << values[i];
    EXPECT_EQ(coded.error[i], values[i] - level);
  }
}

TEST(Ternary, RefusesTheCodeThatIsNeverWritten) {
  const std::vector<std::byte> sound(kBytes, std::byte{0b11'00'01'00});
  for_each_target([&] {
    const CodingBody body = coding_body<Ternary>();
    EXPECT_TRUE(body.valid(sound.data(), kBytes));
    for (const std::size_t byte : {std::size_t{0}, kBytes / 2, kBytes - 1}) {
      for (int shift = 0; shift < 8; shift += 2) {
        std::vector<std::byte> damaged = sound;
        damaged[byte] = (damaged[byte] & ~(std::byte{3} << shift)) | std::byte{2} << shift;
        EXPECT_FALSE(body.valid(damaged.data(), kBytes)) << byte << ", bit " << shift;
        EXPECT_FALSE(body.valid(&damaged[byte], 1)) << "bit " << shift;
      }
    }
  });
}

}  // namespace
}  // namespace winnow::tests
