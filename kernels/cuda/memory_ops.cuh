// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct Fill {
  DeviceElements elements;
  std::uint64_t count;
  float value;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    const float four[4] = {value, value, value, value};
    elements.store(first, here, four);
  }
};

/// For spans that do not overlap.
struct Copy {
  float* to;
  const float* from;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float four[4];
    load_vector(from + first, here, four);
    store_vector(to + first, here, four);
  }
};

/// Words that travel with a launch: few, or as many as the arguments of a kernel have room for, 4
/// KB and, from CUDA 12.1 on, 32 KB.
inline constexpr std::uint32_t kFewWords = 896, kManyWords = 8000;

template <std::uint32_t kWords>
struct Store {
  std::byte* to;
  std::uint32_t count;
  std::uint32_t words[kWords];

  WINNOW_DEVICE void run() const {
    for (std::uint64_t i = simt::grid_thread(); i < count; i += simt::grid_threads()) {
      simt::store_word(to + sizeof(std::uint32_t) * i, words[i]);
    }
  }
};

}  // namespace winnow::kernels::cuda
