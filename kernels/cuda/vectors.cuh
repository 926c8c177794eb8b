// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

// A thread works on vectors: 4 elements that follow each other, moved by one access where they are
// all there and lie at a multiple of 16 bytes.

/// The bits of |x|: ordered as |x| is, for every x that is not NaN.
WINNOW_DEVICE std::uint32_t magnitude(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU;
}

inline constexpr std::uint32_t kInfinity = 0x7f800000;  // its magnitude

WINNOW_DEVICE bool is_finite(float x) {
  return magnitude(x) < kInfinity;
}

WINNOW_DEVICE bool is_vector(const float* at) {
  return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
}

/// The elements of a vector whose bits are set in `here`; 0 for the others.
WINNOW_DEVICE void load_vector(const float* from, unsigned here, float (&to)[4]) {
  if (here == 0xf && is_vector(from)) {
    simt::load4(from, to);
    return;
  }
  for (unsigned e = 0; e < 4; ++e) to[e] = (here >> e & 1) != 0 ? from[e] : 0;
}

WINNOW_DEVICE void store_vector(float* to, unsigned here, const float (&from)[4]) {
  if (here == 0xf && is_vector(to)) {
    simt::store4(to, from);
    return;
  }
  for (unsigned e = 0; e < 4; ++e) {
    if ((here >> e & 1) != 0) to[e] = from[e];
  }
}

/// Bits of the elements of a vector at `first` that lie below `count`.
template <class Count>
WINNOW_DEVICE unsigned elements_below(Count count, Count first) {
  if (first >= count) return 0;
  return count - first >= 4 ? 0xfU : (1U << static_cast<unsigned>(count - first)) - 1;
}

/// Calls each(first, here) for the vectors of `count` elements that are this thread's of the grid.
template <class Each>
WINNOW_DEVICE void for_each_vector(std::uint64_t count, const Each& each) {
  for (std::uint64_t first = 4 * simt::grid_thread(); first < count;
       first += 4 * simt::grid_threads()) {
    each(first, elements_below(count, first));
  }
}

}  // namespace winnow::kernels::cuda
