// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

namespace train {

/// 64 random bits that depend only on the key (the finaliser of SplitMix64, Steele, Lea and Flood,
/// 2014, once per word), so no generator state has to stay in step.
inline std::uint64_t random_bits(std::initializer_list<std::uint64_t> key) {
  std::uint64_t bits = 0;
  for (const std::uint64_t word : key) {
    bits += word + 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
  }
  return bits;
}

/// Uniform in [0, 1), with 53 bits.
inline double random_unit(std::initializer_list<std::uint64_t> key) {
  return static_cast<double>(random_bits(key) >> 11) * 0x1p-53;
}

}  // namespace train
