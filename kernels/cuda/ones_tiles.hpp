// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// Tiles of a row of bits whose ones are counted by look-back (ones.cuh). A thread has `each` words
/// of 64 bits of a tile.
constexpr std::uint64_t ones_tiles(std::uint64_t words, std::uint32_t each) {
  const std::uint64_t tile = simt::kThreads * each;
  return (words + tile - 1) / tile;
}

/// Bytes of scratch of the count, a multiple of 256: the ticket, and a word for each tile, however
/// short these are.
constexpr std::size_t ones_scratch(std::uint64_t words) {
  return 256 + (ones_tiles(words, 1) * sizeof(std::uint64_t) + 255) / 256 * 256;
}

}  // namespace winnow::kernels::cuda
