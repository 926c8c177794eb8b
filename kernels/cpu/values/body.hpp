// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/arithmetic/partition.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::kernels::cpu {

/// The input of a coding's bodies: values in whole units of 64.
inline constexpr std::size_t kUnit = Partition::kUnit;

/// Units to code: error[i] = fl(x[i] - decoded), where error may be x. A value +0 has a code of
/// zeros, whatever the coding and the rounding.
struct UnitsToCode {
  const float* x;
  float* error;
  std::size_t units;
  std::uint64_t first;  ///< number of the first value in its message, a multiple of 64
  std::byte* codes;     ///< of these units
  const float* scales;  ///< of the message
  std::size_t block;
  RandomKey key;  ///< read only where rounding is stochastic

  /// Calls body(scale, units of x, error and codes that share it) block by block.
  template <class Body>
  void for_each_block(std::uint32_t bits, const Body& body) const {
    UnitsToCode rest = *this;
    while (rest.units != 0) {
      UnitsToCode part = rest;
      part.units = std::min<std::size_t>(rest.units, (block - rest.first % block) / kUnit);
      body(scales == nullptr ? 0.0f : scales[rest.first / block], part);
      rest.x += part.units * kUnit;
      rest.error += part.units * kUnit;
      rest.codes += part.units * kUnit * bits / 8;
      rest.first += part.units * kUnit;
      rest.units -= part.units;
    }
  }
};

/// A coding's bodies for the lanes of a Highway target. Null: the coding has none.
struct CodingBody {
  float (*scale)(const float* x, std::size_t n);
  void (*nearest)(const UnitsToCode& units);
  void (*stochastic)(const UnitsToCode& units);
  void (*decode)(const std::byte* codes, float scale, std::size_t units, float* out);
  bool (*valid)(const std::byte* codes, std::size_t bytes);  ///< no code outside the range
};

/// The body of a struct of kernels/arithmetic/value.hpp on the chosen target. Each coding's file
/// defines its own.
template <class Coding>
CodingBody coding_body();

}  // namespace winnow::kernels::cpu
