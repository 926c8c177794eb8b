// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace winnow::kernels {

/// The share of words 2 p and 2 p + 1 of a message in its checksum; `pair` holds the first in its
/// lower half.
constexpr std::uint64_t sum_of_pair(std::uint64_t p, std::uint64_t pair) {
  return (pair & 0xffffffffU) * (4 * p + 1) + (pair >> 32) * (4 * p + 3);
}

}  // namespace winnow::kernels
