// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/arithmetic/value.hpp"

namespace winnow::kernels::values {

/// A value coding: -1, 0 or 1 times the largest magnitude of a block (Wen et al., TernGrad, 2017).
/// Codes are two's complement, four a byte; -2 is not a code. The head of
/// kernels/arithmetic/value.hpp says what each name must mean.
struct Ternary : Levels<1> {
  static constexpr ValueCoding kLine{.id = 15,  // the largest: copied, it takes the next free one
                                     .name = "trit",  // `ternary` is another name of `int2`
                                     .default_block = 512,
                                     .stochastic = true,
                                     .bits = 2,
                                     .has_zero = true};
  static constexpr std::uint64_t kInvalidCode = 2, kInvalidMask = 3;

  static constexpr std::uint32_t nearest(float x, float inverse) {
    return code_of(nearest_level(x, inverse));
  }
  static constexpr std::uint32_t stochastic(float x, float inverse, std::uint32_t word) {
    return code_of(stochastic_level(x, inverse, word));
  }
  static constexpr float decode(std::uint32_t code, float scale) {
    return static_cast<float>(static_cast<std::int32_t>(code ^ 2) - 2) * scale;
  }

 private:
  static constexpr std::uint32_t code_of(float level) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(level)) & 3;
  }
};

}  // namespace winnow::kernels::values
