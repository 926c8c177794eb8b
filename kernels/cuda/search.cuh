// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// The first of `count` ascending indices that is not below `position`, by one thread. A look at
/// memory takes as long for seven indices as for one, so each leaves an eighth of what was left.
WINNOW_DEVICE std::uint64_t first_not_below(const std::uint32_t* index, std::uint64_t count,
                                            std::uint64_t position) {
  std::uint64_t first = 0, end = count;
  while (first < end) {
    const std::uint64_t left = end - first;
    std::uint32_t looked[7];
    WINNOW_UNROLLED
    for (std::uint32_t part = 0; part < 7; ++part)
      looked[part] = index[first + left * (part + 1) / 8];
    std::uint32_t below = 0;
    WINNOW_UNROLLED
    for (const std::uint32_t each : looked) below += each < position ? 1 : 0;
    if (below < 7) end = first + left * (below + 1) / 8;
    if (below > 0) first += left * below / 8 + 1;
  }
  return first;
}

}  // namespace winnow::kernels::cuda
