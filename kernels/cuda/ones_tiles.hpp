// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

inline constexpr std::uint32_t kOnesWords = 4;  // of 64 bits, of a thread
inline constexpr std::uint32_t kOnesTile = simt::kThreads * kOnesWords;

/// Tiles of a row of bits whose ones are counted by look-back (ones.cuh).
constexpr std::uint64_t ones_tiles(std::uint64_t words) {
  return (words + kOnesTile - 1) / kOnesTile;
}

/// Bytes of scratch of the count, a multiple of 256: the ticket, and a word for each tile.
constexpr std::size_t ones_scratch(std::uint64_t words) {
  return 256 + (ones_tiles(words) * sizeof(std::uint64_t) + 255) / 256 * 256;
}

}  // namespace winnow::kernels::cuda
