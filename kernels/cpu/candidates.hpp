// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/workspace.hpp>

namespace winnow::kernels::cpu {

/// The bits of |x|: ordered as |x| is, for every x that is not NaN.
inline std::uint32_t magnitude(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

/// The magnitudes from `first` to `last`, which is one of them.
struct MagnitudeRange {
  std::int32_t first, last;
};

/// Elements that one thread took out of its range because they may be among the k largest,
/// ascending by index. A view of scratch memory: room for limit + Ranges::kBlock elements, and at
/// least kSlack behind the last.
struct Candidates {
  static constexpr std::uint32_t kDigitBits = 11;
  static constexpr std::size_t kBins = std::size_t{1} << kDigitBits;
  static constexpr std::size_t kSlack = 16;  ///< lanes of a vector, at most

  std::uint32_t* index;
  float* value;
  std::size_t size;
  std::size_t limit;      ///< prune before more are added to a size above this
  std::uint64_t dropped;  ///< put back into the residual by prunes
  MagnitudeRange span;    ///< this and what follows belongs to find_cut
  std::size_t above;
  std::array<std::uint32_t, kBins> histogram;
};

/// The rest of a set of candidates: all whose magnitude is above, and the first `ties` that
/// equal it.
struct Cut {
  std::uint32_t magnitude;
  std::size_t ties;
};

/// The cut that leaves exactly k of all candidates, 1 <= k <= their number. One thread a part.
Cut find_cut(std::span<Candidates> parts, std::size_t k);

/// Candidates of all parts.
std::size_t held(std::span<const Candidates> parts);

/// Cuts the candidates of all parts to k = index.size() of them, the others go back into the
/// residual, if there is one. Returns the k-th largest magnitude.
float write_largest(Workspace& workspace, std::span<Candidates> parts, float* residual,
                    std::span<std::uint32_t> index, std::span<float> value);

/// Reduces `part` to its k largest. Returns the bound that later elements of the range have to
/// reach: above the k-th, because of equal elements the earlier wins.
float prune(Candidates& part, std::size_t k, float* residual);

}  // namespace winnow::kernels::cpu
