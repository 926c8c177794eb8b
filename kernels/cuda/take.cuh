// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

struct TakeTask {
  float* elements;
  std::uint32_t base;
  const std::uint32_t* index;
  float* value;
  std::uint64_t k;
};

/// No position is named twice, so each entry is a thread's own.
struct Take {
  using Task = TakeTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for (std::uint64_t j = simt::grid_thread(); j < task.k; j += simt::grid_threads()) {
      float& element = task.elements[task.index[j] - task.base];
      task.value[j] = element;
      element = 0;
    }
  }
};

struct PutTask {
  float* elements;
  std::uint32_t base;
  const std::uint32_t* index;
  const float* value;
  std::uint64_t k;
};

struct Put {
  using Task = PutTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for (std::uint64_t j = simt::grid_thread(); j < task.k; j += simt::grid_threads()) {
      task.elements[task.index[j] - task.base] = task.value[j];
    }
  }
};

}  // namespace winnow::kernels::cuda
