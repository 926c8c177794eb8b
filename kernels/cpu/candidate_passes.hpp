// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/candidates.hpp"

/// \file
/// One thread's passes over its candidates, in vectors. Magnitudes are below 2^31, so they compare
/// as signed numbers, which every processor does in vectors.

namespace winnow::kernels::cpu {

/// Leaves the least magnitude and the greatest in part.span; without candidates, the greatest there
/// may be and 0.
void find_span(Candidates& part);

/// Counts magnitudes of a range by (magnitude - range.first) >> shift, which is below `bins`, into
/// part.histogram, and those above the range into part.above.
void count_digits(Candidates& part, MagnitudeRange range, std::uint32_t shift, std::size_t bins);

/// Candidates that cut_few takes, at most.
constexpr std::size_t kFew = 64;  // comparing so many takes less than another histogram
/// The cut that leaves `rank` of the candidates in a range.
Cut cut_few(std::span<const Candidates> parts, MagnitudeRange range, std::size_t rank);

/// How many of the candidates lie above the cut, and on it.
struct CutCount {
  std::size_t above, ties;
};
CutCount count_cut(const Candidates& part, std::uint32_t magnitude);

/// Writes what remains of `part` to index and value (they may be the part's own) and puts the
/// others back into the residual, if there is one. Returns how many remain.
std::size_t apply_cut(const Candidates& part, Cut cut, float* residual, std::uint32_t* index,
                      float* value);

}  // namespace winnow::kernels::cpu
