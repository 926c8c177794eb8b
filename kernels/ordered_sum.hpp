// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/value_coding.hpp"

namespace winnow::kernels {

/// What one rank adds to a sum, in one of three forms:
///   index and value   values at some positions, ascending
///   value alone       a value at every position from 0 on
///   coded             the same, as kernels::quantize writes `count` values
struct Term {
  std::span<const std::uint32_t> index = {};
  std::span<const float> value = {};
  ValueFormat format = {};
  std::span<const std::byte> coded = {};
  std::uint64_t count = 0;
};

/// Writes positions [begin, begin + sum.size()) of the sum of `terms` in their order, times factor:
///   sum[i] = (((0 + terms[0][begin + i]) + terms[1][begin + i]) + ...) * factor
/// where a term that says nothing of a position is left out. Tile by tile, so that each sum is
/// written once and no term is ever decoded whole. Returns whether every sum is finite.
bool ordered_sum(const Exec& exec, std::span<const Term> terms, std::uint64_t begin,
                 std::span<float> sum, float factor);

}  // namespace winnow::kernels
