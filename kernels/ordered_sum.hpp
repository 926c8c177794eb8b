// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/rest.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/terms.hpp"

namespace winnow::kernels {

/// For a second pass over sums, some of them too large for their elements of 16 bits: their rests,
/// once it is known that the sums hold.
struct Rests {
  Placed<PlacedSpan> residuals = {};  ///< float32, one at the positions of each span of elements
  RestKeeper keeper = {};
  const std::uint32_t* too_large = nullptr;  ///< if not null, the first pass's, read when the work
                                             ///< runs: 0 where there is nothing to do

  bool empty() const { return residuals.host.empty(); }
  /// Whether there is nothing to do, of a job in host memory.
  bool are_none() const { return !empty() && too_large != nullptr && *too_large == 0; }
};

struct OrderedSumJob {
  PlacedTerms terms = {};
  /// Where to write it: ascending by base, and disjoint. Positions between them go nowhere.
  /// Elements of float32, bf16 or fp16.
  Placed<PlacedSpan> sums = {};
  float factor = 1;
  /// If not null, becomes 1 if a sum is not finite where it is written, else it stays.
  std::uint32_t* not_finite = nullptr;
  /// The sums are as a pass with GradientAfter::accumulated left them: on the host all zeros, so
  /// that a body may write only what terms name.
  bool after_accumulate = false;
  /// If not null, becomes 1 if a finite sum is too large for its element of 16 bits, else it stays.
  std::uint32_t* too_large = nullptr;
  /// If not empty, the sums are made once more: elements and words stay, and where a sum is too
  /// large and this rank keeps the rest, the residual grows by it.
  Rests rests = {};
};

/// Writes the sum of the terms in their order, times factor, at the positions of all `sums`:
///   sum[i] = (((0 + terms[0][base + i]) + terms[1][base + i]) + ...) * factor
/// A term that does not name a position is left out there. Summed in float32, and rounded to
/// elements of 16 bits once, to nearest even; a finite sum that would become infinite becomes the
/// largest finite element. Tile by tile, so that each sum is written once,
/// without atomics, and no term is ever decoded whole; a tile may have many small sums, which share
/// its search of the terms. Bit-identical for every place and number of threads.
void ordered_sum(const Exec& exec, const OrderedSumJob& job);

}  // namespace winnow::kernels
