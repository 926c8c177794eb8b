// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/terms.hpp"

namespace winnow::kernels::cpu {

/// Adds lists, whose values are not coded, to `sums` in their order, then multiplies each position
/// that any list names by `factor` once (not done where factor is 1):
///   sum[i] = factor * (((sum[i] + lists[0][base + i]) + lists[1][base + i]) + ...)
/// Entries of no sum are left out. The sums are float32. Each thread owns a range of positions and
/// walks all lists through it tile by tile, so there are no atomics and sums are written once.
/// Returns whether every sum it made is finite.
bool add_lists(const Exec& exec, std::span<const Term> lists, std::span<const PlacedSpan> sums,
               float factor);

/// The positions from the first sum to the end of the last.
inline std::uint64_t positions(std::span<const PlacedSpan> sums) {
  return sums.empty() ? 0 : sums.back().end() - sums.front().base;
}

/// Calls each(elements, position of the first) for the stretches of `sums` within positions [begin,
/// end).
template <class Each>
void for_each_within(std::span<const PlacedSpan> sums, std::uint64_t begin, std::uint64_t end,
                     const Each& each) {
  auto sum =
      std::ranges::partition_point(sums, [&](const PlacedSpan& one) { return one.end() <= begin; });
  for (; sum != sums.end() && sum->base < end; ++sum) {
    const std::uint64_t from = std::max(begin, sum->base), to = std::min(end, sum->end());
    if (from < to) each(sum->elements.subspan(from - sum->base, to - from), from);
  }
}

}  // namespace winnow::kernels::cpu
