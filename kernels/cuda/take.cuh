// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// No position is named twice, so each entry is a thread's own.
struct Take {
  float* elements;
  std::uint32_t base;
  const std::uint32_t* index;
  float* value;
  std::uint64_t k;

  WINNOW_DEVICE void run() const {
    for (std::uint64_t j = simt::grid_thread(); j < k; j += simt::grid_threads()) {
      float& element = elements[index[j] - base];
      value[j] = element;
      element = 0;
    }
  }
};

struct Put {
  float* elements;
  std::uint32_t base;
  const std::uint32_t* index;
  const float* value;
  std::uint64_t k;

  WINNOW_DEVICE void run() const {
    for (std::uint64_t j = simt::grid_thread(); j < k; j += simt::grid_threads()) {
      elements[index[j] - base] = value[j];
    }
  }
};

}  // namespace winnow::kernels::cuda
