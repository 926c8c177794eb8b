// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct Fill {
  float* elements;
  std::uint64_t count;
  float value;

  WINNOW_DEVICE void run() const {
    const float four[4] = {value, value, value, value};
    for_each_vector(count, [&](std::uint64_t first, unsigned here) {
      store_vector(elements + first, here, four);
    });
  }
};

/// For spans that do not overlap.
struct Copy {
  float* to;
  const float* from;
  std::uint64_t count;

  WINNOW_DEVICE void run() const {
    for_each_vector(count, [&](std::uint64_t first, unsigned here) {
      float four[4];
      load_vector(from + first, here, four);
      store_vector(to + first, here, four);
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
  StoreTask task;

  WINNOW_DEVICE void run() const {
    for (std::uint32_t i = simt::thread(); i < task.count; i += simt::kThreads) {
      simt::store_word(task.to + sizeof(std::uint32_t) * i, task.words[i]);
    }
  }
};

}  // namespace winnow::kernels::cuda
