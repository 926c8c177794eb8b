// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/exec/place_memory.hpp"
#include "kernels/terms.hpp"

namespace winnow::kernels {

struct OrderedSumJob {
  PlacedTerms terms = {};
  /// Where to write it: ascending by base, and disjoint. What terms name between them goes nowhere.
  /// Elements of float32, bf16 or fp16.
  Placed<PlacedSpan> sums = {};
  float factor = 1;
  /// If not null, becomes 1 if a sum is not finite where it is written, else it stays.
  std::uint32_t* not_finite = nullptr;
  /// The sums are as a pass with GradientAfter::fed left them: on the host all zeros, so that a
  /// body may write only what terms name.
  bool sums_are_fed = false;
};

/// Writes the sum of the terms in their order, times factor, at the positions of all `sums`:
///   sum[i] = (((0 + terms[0][base + i]) + terms[1][base + i]) + ...) * factor
/// A term that does not name a position is left out there. Summed in float32, and rounded to
/// elements of 16 bits once, to nearest even. Tile by tile, so that each sum is written once,
/// without atomics, and no term is ever decoded whole; a tile may have many small sums, which share
/// its search of the terms. Bit-identical for every place and number of threads.
void ordered_sum(const Exec& exec, const OrderedSumJob& job);

}  // namespace winnow::kernels
