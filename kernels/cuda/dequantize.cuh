// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

/// Values [begin, begin + count): a vector a thread.
struct Dequantize {
  DeviceValues values;
  std::uint64_t begin;
  float* out;
  std::uint64_t count;  ///< of out

  WINNOW_DEVICE void run() const {
    with_coding(values, [this](auto coding) {
      for (std::uint64_t i = 4 * simt::grid_thread(); i < count; i += 4 * simt::grid_threads()) {
        const unsigned here = elements_below(count, i);
        float four[4] = {};
        for (unsigned e = 0; e < 4; ++e) {
          if ((here >> e & 1) != 0) {
            four[e] = value_at<decltype(coding)>(values, begin + i + e);
          }
        }
        store_vector(out + i, here, four);
      }
    });
  }
};

}  // namespace winnow::kernels::cuda
