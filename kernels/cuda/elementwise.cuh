// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct ScaleTask {
  float* elements;
  std::uint64_t count;
  float factor;
};

struct Scale {
  using Task = ScaleTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each_vector(task.count, [&task](std::uint64_t first, unsigned here) {
      float four[4];
      load_vector(task.elements + first, here, four);
      for (float& element : four) element *= task.factor;
      store_vector(task.elements + first, here, four);
    });
  }
};

struct FiniteTask {
  const float* elements;
  std::uint64_t count;
  std::uint32_t* not_finite;
};

struct AllFinite {
  using Task = FiniteTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    bool finite = true;
    for_each_vector(task.count, [&](std::uint64_t first, unsigned here) {
      float four[4];
      load_vector(task.elements + first, here, four);
      for (const float element : four) finite = finite && is_finite(element);
    });
    if (!finite) simt::atomic_or(task.not_finite, 1);
  }
};

}  // namespace winnow::kernels::cuda
