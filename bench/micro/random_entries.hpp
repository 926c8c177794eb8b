// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

#include "kernels/exec/host_memory.hpp"
#include "kernels/terms.hpp"

namespace winnow::bench {

/// Owns a sparse vector.
struct Entries {
  kernels::HostArray<std::uint32_t> index;
  kernels::HostArray<float> value;
  kernels::SparseView view() const { return {index.span(), value.span()}; }
};

/// k of count positions, uniformly at random, in order (selection sampling: Knuth, volume 2,
/// algorithm S): the support with the most entropy.
inline Entries random_entries(std::uint64_t count, std::uint64_t k, unsigned seed) {
  std::mt19937_64 random(seed);
  Entries entries{kernels::HostArray<std::uint32_t>(k), kernels::HostArray<float>(k)};
  std::uint64_t taken = 0;
  for (std::uint64_t i = 0; taken < k; ++i) {
    if (random() % (count - i) >= k - taken) continue;
    entries.index.span()[taken] = static_cast<std::uint32_t>(i);
    entries.value.span()[taken++] = static_cast<float>(random() % 1000) - 500;
  }
  return entries;
}

}  // namespace winnow::bench
