// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct FeedbackAddTask {
  float* elements;
  const float* residual;
  std::uint64_t count;
  float decay;
};

struct FeedbackAdd {
  using Task = FeedbackAddTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each_vector(task.count, [&task](std::uint64_t first, unsigned here) {
      float acc[4], residual[4];
      load_vector(task.elements + first, here, acc);
      load_vector(task.residual + first, here, residual);
      for (unsigned e = 0; e < 4; ++e) acc[e] = feedback(acc[e], task.decay, residual[e]);
      store_vector(task.elements + first, here, acc);
    });
  }
};

struct FeedbackKeepTask {
  float* residual;
  const float* gradient;
  std::uint64_t count;
  float decay;
};

struct FeedbackKeep {
  using Task = FeedbackKeepTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each_vector(task.count, [&task](std::uint64_t first, unsigned here) {
      float gradient[4], residual[4];
      load_vector(task.gradient + first, here, gradient);
      load_vector(task.residual + first, here, residual);
      for (unsigned e = 0; e < 4; ++e) {
        const float acc = feedback(gradient[e], task.decay, residual[e]);
        if (is_finite(acc)) residual[e] = acc;
      }
      store_vector(task.residual + first, here, residual);
    });
  }
};

}  // namespace winnow::kernels::cuda
