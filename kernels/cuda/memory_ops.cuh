// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

struct CopyTask {
  float* to;
  const float* from;
  std::uint64_t count;
};

/// For spans that do not overlap.
struct Copy {
  using Task = CopyTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each_vector(task.count, [&](std::uint64_t first, unsigned here) {
      float four[4];
      load_vector(task.from + first, here, four);
      store_vector(task.to + first, here, four);
    });
  }
};

struct StoreTask {
  std::byte* to;
  std::uint32_t count;
  std::uint32_t words[896];  // as many as arguments of a kernel have room for on every device
};

/// Runs in one block.
struct Store {
  using Task = StoreTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for (std::uint32_t i = simt::thread(); i < task.count; i += simt::kThreads) {
      simt::store_word(task.to + sizeof(std::uint32_t) * i, task.words[i]);
    }
  }
};

}  // namespace winnow::kernels::cuda
