// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct Widen {
  DeviceElements in;
  float* out;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float four[4];
    in.load(first, here, four);
    store_vector(out + first, here, four);
  }
};

struct Narrow {
  const float* in;
  DeviceElements out;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float four[4];
    load_vector(in + first, here, four);
    out.store(first, here, four);
  }
};

struct Fits {
  const float* in;
  std::uint64_t count;
  float factor;
  std::uint32_t overflow;  ///< the smallest magnitude that does not fit
  std::uint32_t* too_large;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    bool fits = true;
    float four[4];
    load_vector(in + first, here, four);
    for (unsigned e = 0; e < 4; ++e) {
      const bool is_there = (here >> e & 1) != 0;
      fits = fits && (!is_there || magnitude(four[e] * factor) < overflow);
    }
    if (!fits && simt::published(too_large) == 0) simt::atomic_or(too_large, 1);
  }
};

}  // namespace winnow::kernels::cuda
