// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <span>
#include <vector>

namespace winnow::tests {

/// Kinds of float32 input that selections and codings have broken on.
enum class Input {
  normal,
  cauchy,
  pareto,
  all_equal,
  all_zero,
  ascending,
  descending,
  mostly_zero,
  denormal,
  ties,
  not_finite,         ///< NaN and infinities here and there, and at index 0 and the last
  mostly_not_finite,  ///< fewer finite elements than most k
};
inline constexpr Input kInputs[] = {
    Input::normal,   Input::cauchy,    Input::pareto,     Input::all_equal,
    Input::all_zero, Input::ascending, Input::descending, Input::mostly_zero,
    Input::denormal, Input::ties,      Input::not_finite, Input::mostly_not_finite};

inline std::ostream& operator<<(std::ostream& out, Input input) {
  constexpr const char* kNames[] = {"normal",   "cauchy",    "pareto",     "all_equal",
                                    "all_zero", "ascending", "descending", "mostly_zero",
                                    "denormal", "ties",      "not_finite", "mostly_not_finite"};
  return out << kNames[static_cast<std::size_t>(input)];
}

inline std::vector<float> make_input(Input input, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::cauchy_distribution<float> cauchy;
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> elements(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
    float x = normal(random);
    switch (input) {
      case Input::normal:
        break;
      case Input::cauchy:
        x = cauchy(random);
        break;
      case Input::pareto:
        x = sign / (1e-6f + uniform(random));
        break;
      case Input::all_equal:
        x = 0.75f * sign;
        break;
      case Input::all_zero:
        x = 0.0f * sign;
        break;
      case Input::ascending:
        x = static_cast<float>(i + 1) * 0x1p-10f * sign;
        break;
      case Input::descending:
        x = static_cast<float>(count - i) * 0x1p-10f * sign;
        break;
      case Input::mostly_zero:
        if (random() % 1000 != 0) x = 0;
        break;
      case Input::denormal:
        x = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x807fffffu);
        break;
      case Input::ties:
        x = std::trunc(3 * x);
        break;
      case Input::not_finite:
        if (random() % 500 == 0 || i == 0) x = sign * kInfinity;
        if (random() % 500 == 0 || i + 1 == count) x = kNan;
        break;
      case Input::mostly_not_finite:
        if (random() % 400 != 0) x = random() % 2 == 0 ? kNan : sign * kInfinity;
        break;
    }
    elements[i] = x;
  }
  return elements;
}

/// The bits, so that -0 differs from 0 and a NaN equals itself.
inline std::vector<std::uint32_t> bits_of(std::span<const float> elements) {
  std::vector<std::uint32_t> bits;
  bits.reserve(elements.size());
  for (const float x : elements) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// Compares bits, but any NaN equals any other: the machine chooses which NaN a sum leaves.
inline bool same_bits_or_nan(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return (std::isnan(x) && std::isnan(y)) ||
           std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

/// Sizes around vector, block, range and page borders.
inline constexpr std::size_t kSizes[] = {1, 31, 32, 33, 63, 64, 65, 1000, 4095, 4097, 65537};
inline constexpr std::size_t kLargeSize = (std::size_t{1} << 20) + 7;

}  // namespace winnow::tests
