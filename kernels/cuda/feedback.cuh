// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/arithmetic/precondition.hpp"
#include "kernels/cuda/elements.cuh"
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
  DeviceElements gradient;
  std::uint64_t count;
  float decay;
  Precondition precondition;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    const bool has_moment = precondition.has_moment();
    float fresh[4], left[4], moment[4] = {};
    gradient.load(first, here, fresh);
    load_vector(residual + first, here, left);
    if (has_moment) load_vector(precondition.moment + first, here, moment);
    for (unsigned e = 0; e < 4; ++e) {
      const Preconditioned made =
          precondition.of(fresh[e], moment[e], left[e], [](float x) { return simt::root(x); });
      moment[e] = made.moment;
      const float acc = feedback(made.update, decay, left[e]);
      if (is_finite(acc)) left[e] = acc;
    }
    if (has_moment) store_vector(precondition.moment + first, here, moment);
    store_vector(residual + first, here, left);
  }
};

}  // namespace winnow::kernels::cuda
