// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

struct PutBackTask {
  float* sum;
  std::uint32_t base;
  const std::uint32_t* index;
  const float* value;
  std::uint64_t count;
};

/// No position is named twice, so each entry is a thread's own.
struct PutBack {
  using Task = PutBackTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for (std::uint64_t j = simt::grid_thread(); j < task.count; j += simt::grid_threads()) {
      task.sum[task.index[j] - task.base] += task.value[j];
    }
  }
};

}  // namespace winnow::kernels::cuda
