// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/bridge/staging.hpp"

#include <algorithm>
#include <bit>

#include "kernels/exec/keep_for_ever.hpp"

namespace winnow::comm {
namespace {

// Lengths that vary a little from step to step share a block size: steps of a quarter of the power
// of two below, so that at most a quarter is wasted.
std::size_t block_bytes(std::size_t bytes) {
  constexpr std::size_t kLeast = 4096;
  const std::size_t step = std::max(kLeast, std::bit_floor(bytes) / 4);
  return std::max(kLeast, (bytes + step - 1) / step * step);
}

}  // namespace

Staging::~Staging() {
  for (const auto& block : blocks_) {
    std::byte* const memory = block->memory.data();
    if (abandoned_) {
      kernels::keep_for_ever(memory);
    } else {
      source_.release(memory);
    }
  }
}

Staging::Block& Staging::take(std::size_t bytes) {
  Block* best = nullptr;
  for (const auto& block : blocks_) {
    if (block->lent || block->memory.size() < bytes) continue;
    if (best == nullptr || block->memory.size() < best->memory.size()) best = block.get();
  }
  if (best == nullptr) {
    // The entry first, so that every allocation has an owner.
    blocks_.push_back(std::make_unique<Block>());
    best = blocks_.back().get();
    const std::size_t length = block_bytes(bytes);
    best->memory = {source_.allocate(length), length};
  }
  best->lent = true;
  return *best;
}

}  // namespace winnow::comm
