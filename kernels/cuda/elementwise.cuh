// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/arithmetic/precondition.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct Scale {
  float* elements;
  std::uint64_t count;
  float factor;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float four[4];
    load_vector(elements + first, here, four);
    for (float& element : four) element *= factor;
    store_vector(elements + first, here, four);
  }
};

struct LookAhead {
  const float* weights;
  const float* residual;
  float share;
  float* ahead;
  std::uint64_t count;

  WINNOW_DEVICE void run() const {
    for_each_vector(count, [this](std::uint64_t first, unsigned here) {
      float weight[4], missing[4];
      load_vector(weights + first, here, weight);
      load_vector(residual + first, here, missing);
      for (unsigned e = 0; e < 4; ++e) weight[e] = ahead_of(weight[e], share, missing[e]);
      store_vector(ahead + first, here, weight);
    });
  }
};

struct DivideByMoment {
  float* gradient;
  float* moment;
  std::uint64_t count;
  SecondMomentStep by;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float update[4], next[4];
    load_vector(gradient + first, here, update);
    load_vector(moment + first, here, next);
    for (unsigned e = 0; e < 4; ++e) {
      const Preconditioned made =
          divided_by_moment(update[e], next[e], by, [](float x) { return simt::root(x); });
      update[e] = made.update;
      next[e] = made.moment;
    }
    store_vector(gradient + first, here, update);
    store_vector(moment + first, here, next);
  }
};

struct CorrectMomentum {
  float* gradient;
  float* moment;
  const float* residual;  ///< or null
  std::uint64_t count;
  MomentumStep by;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float update[4], next[4], missing[4] = {1, 1, 1, 1};
    load_vector(gradient + first, here, update);
    load_vector(moment + first, here, next);
    if (residual != nullptr) load_vector(residual + first, here, missing);
    for (unsigned e = 0; e < 4; ++e) {
      const Preconditioned made = with_momentum(update[e], next[e], missing[e] == 0, by);
      update[e] = made.update;
      next[e] = made.moment;
    }
    store_vector(gradient + first, here, update);
    store_vector(moment + first, here, next);
  }
};

struct AllFinite {
  const float* elements;
  std::uint64_t count;
  std::uint32_t* not_finite;

  WINNOW_DEVICE void run() const {
    bool finite = true;
    for_each_vector(count, [&](std::uint64_t first, unsigned here) {
      float four[4];
      load_vector(elements + first, here, four);
      for (const float element : four) finite = finite && is_finite(element);
    });
    if (!finite) simt::atomic_or(not_finite, 1);
  }
};

}  // namespace winnow::kernels::cuda
