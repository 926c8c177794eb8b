// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/arithmetic/value.hpp"
#include "kernels/value_coding.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {

/// Coded values, aligned. They begin as ones, so that unwritten padding shows.
class Coded {
 public:
  Coded(const kernels::ValueFormat& format, std::uint64_t k)
      : bytes_(kernels::value_bytes(format, k)), words_(bytes_ / 8, ~std::uint64_t{0}) {}

  std::span<std::byte> span() { return std::as_writable_bytes(std::span(words_)); }
  bool operator==(const Coded& other) const = default;

 private:
  std::uint64_t bytes_;
  std::vector<std::uint64_t> words_;
};

/// Every coding and rounding; codings with scales have the default block and others.
inline std::vector<kernels::ValueFormat> all_formats() {
  std::vector<kernels::ValueFormat> formats;
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    for (const auto rounding : {kernels::Rounding::nearest, kernels::Rounding::stochastic}) {
      for (const std::uint32_t block : std::set<std::uint32_t>{64, coding.default_block, 2048}) {
        const kernels::ValueFormat format{&coding, block, rounding};
        if (kernels::valid_format(format)) formats.push_back(format);
      }
    }
  }
  return formats;
}

/// The format of a coding of the table, with its default block.
inline kernels::ValueFormat make_format(std::string_view name,
                                        kernels::Rounding rounding = kernels::Rounding::nearest) {
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    if (coding.name == name) return {&coding, coding.default_block, rounding};
  }
  ADD_FAILURE() << "no value coding " << name;
  return {};
}

/// The codes that the coding never writes.
inline std::vector<std::uint32_t> invalid_codes(const kernels::ValueCoding& coding) {
  std::vector<std::uint32_t> codes;
  kernels::visit_coding(coding, [&codes](auto line) {
    using Coding = decltype(line);
    if constexpr (Coding::kInvalidCode != kernels::values::kNone) {
      for (std::uint32_t code = 0; code < 1U << Coding::kLine.bits; ++code) {
        if ((code & Coding::kInvalidMask) == Coding::kInvalidCode) codes.push_back(code);
      }
    }
  });
  return codes;
}

inline std::string name_of(const kernels::ValueFormat& format) {
  return std::string(format.coding->name) + ":block=" + std::to_string(format.block) +
         (format.rounding == kernels::Rounding::stochastic ? ":stochastic" : "");
}

/// Finite inputs.
enum class Values { normal, cauchy, all_equal, zeros, denormal, largest, any_bits, tiny_and_large };
inline constexpr Values kValues[] = {Values::normal,   Values::cauchy,        Values::all_equal,
                                     Values::zeros,    Values::denormal,      Values::largest,
                                     Values::any_bits, Values::tiny_and_large};

inline std::vector<float> make_values(Values kind, std::size_t count, std::uint32_t seed) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  std::mt19937 random(seed);
  switch (kind) {
    case Values::normal:
      return make_input(Input::normal, count, seed);
    case Values::cauchy:
      return make_input(Input::cauchy, count, seed);
    case Values::all_equal:
      return make_input(Input::all_equal, count, seed);
    case Values::zeros:  // of both signs
      return make_input(Input::all_zero, count, seed);
    case Values::denormal:
      return make_input(Input::denormal, count, seed);
    default:
      break;
  }
  std::vector<float> values(count);
  for (float& x : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    if (kind == Values::largest) {
      x = bits % 3 == 0 ? -kLargest : kLargest;
    } else if (kind == Values::any_bits) {
      x = std::bit_cast<float>(bits);
      if (!std::isfinite(x)) x = kLargest;
    } else {  // stretches of 300 so small that a block of them has no scale
      x = std::bit_cast<float>(
          (bits & 0x80ffffff) |
          (static_cast<std::size_t>(&x - values.data()) / 300 % 2 == 0 ? 0u : 0x3f000000u));
    }
  }
  return values;
}

}  // namespace winnow::tests
