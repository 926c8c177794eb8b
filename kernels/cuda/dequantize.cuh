// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct DequantizeTask {
  DeviceValues values;
  std::uint64_t begin;
  float* out;
  std::uint64_t count;  ///< of out
};

/// Values [begin, begin + count): a vector a thread.
struct Dequantize {
  using Task = DequantizeTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    with_coding(task.values, [&task](auto coding) {
      for (std::uint64_t i = 4 * simt::grid_thread(); i < task.count;
           i += 4 * simt::grid_threads()) {
        const unsigned here = elements_below(task.count, i);
        float four[4] = {};
        for (unsigned e = 0; e < 4; ++e) {
          if ((here >> e & 1) != 0) {
            four[e] = value_at<decltype(coding)>(task.values, task.begin + i + e);
          }
        }
        store_vector(task.out + i, here, four);
      }
    });
  }
};

}  // namespace winnow::kernels::cuda
