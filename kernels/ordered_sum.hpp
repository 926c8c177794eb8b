// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/terms.hpp"

namespace winnow::kernels {

struct OrderedSumJob {
  PlacedTerms terms = {};
  std::uint64_t begin = 0;  ///< position of sum[0]
  std::span<float> sum = {};
  float factor = 1;
  /// If not null, becomes 1 if a sum is not finite, else it stays.
  std::uint32_t* not_finite = nullptr;
  /// `sum` is as a pass with GradientAfter::fed left it: on the host all zeros, so that a body may
  /// write only what terms name.
  bool sum_is_fed = false;
};

/// Writes positions [begin, begin + sum.size()) of the sum of the terms in their order, times
/// factor:
///   sum[i] = (((0 + terms[0][begin + i]) + terms[1][begin + i]) + ...) * factor
/// A term that does not name a position is left out there. Tile by tile, so that each sum is
/// written once, without atomics, and no term is ever decoded whole. Bit-identical for every place
/// and number of threads.
void ordered_sum(const Exec& exec, const OrderedSumJob& job);

}  // namespace winnow::kernels
