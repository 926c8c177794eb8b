// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct FillTask {
  float* elements;
  std::uint64_t count;
  float value;
};

struct Fill {
  using Task = FillTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    const float four[4] = {task.value, task.value, task.value, task.value};
    for_each_vector(task.count, [&](std::uint64_t first, unsigned here) {
      store_vector(task.elements + first, here, four);
    });
  }
};

}  // namespace winnow::kernels::cuda
