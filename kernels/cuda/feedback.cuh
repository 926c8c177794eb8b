// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct FeedbackAdd {
  float* elements;
  const float* residual;
  std::uint64_t count;
  float decay;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float acc[4], left[4];
    load_vector(elements + first, here, acc);
    load_vector(residual + first, here, left);
    for (unsigned e = 0; e < 4; ++e) acc[e] = feedback(acc[e], decay, left[e]);
    store_vector(elements + first, here, acc);
  }
};

struct FeedbackKeep {
  float* residual;
  const float* gradient;
  std::uint64_t count;
  float decay;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float fresh[4], left[4];
    load_vector(gradient + first, here, fresh);
    load_vector(residual + first, here, left);
    for (unsigned e = 0; e < 4; ++e) {
      const float acc = feedback(fresh[e], decay, left[e]);
      if (is_finite(acc)) left[e] = acc;
    }
    store_vector(residual + first, here, left);
  }
};

}  // namespace winnow::kernels::cuda
