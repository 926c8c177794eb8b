// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

// A span is head + body + tail: the body is the stretch of whole, aligned vectors of 4 floats, head
// and tail are the at most 3 floats before and after it. Threads stride over the body by the whole
// grid; each float of head and tail has a thread of its own. Spans that lie differently modulo 16
// bytes have no common body: they are walked a float at a time, which is as coalesced but takes
// more instructions.

struct ResidualAddTask {
  float* residual;
  const float* gradient;
  std::uint64_t head, count;
};

struct AddVectors {
  ResidualAddTask task;

  WINNOW_DEVICE void run() const {
    float* __restrict__ const residual = task.residual;
    const float* __restrict__ const gradient = task.gradient;
    const std::uint64_t me = simt::grid_thread(), vectors = (task.count - task.head) / 4;
    // From the body's begin: from the span's own, nvcc makes four stores of one.
    float* const to = residual + task.head;
    const float* const from = gradient + task.head;
    for (std::uint64_t i = me; i < vectors; i += simt::grid_threads()) {
      float r[4], g[4];
      simt::load4(to + 4 * i, r);
      simt::load4(from + 4 * i, g);
      for (unsigned e = 0; e < 4; ++e) r[e] = add_gradient(r[e], g[e]);
      simt::store4(to + 4 * i, r);
    }
    const std::uint64_t tail = task.head + 4 * vectors;
    if (me < task.head) residual[me] = add_gradient(residual[me], gradient[me]);
    if (me < task.count - tail) {
      residual[tail + me] = add_gradient(residual[tail + me], gradient[tail + me]);
    }
  }
};

struct AddFloats {
  ResidualAddTask task;

  WINNOW_DEVICE void run() const {
    float* __restrict__ const residual = task.residual;
    const float* __restrict__ const gradient = task.gradient;
    for (std::uint64_t i = simt::grid_thread(); i < task.count; i += simt::grid_threads()) {
      residual[i] = add_gradient(residual[i], gradient[i]);
    }
  }
};

}  // namespace winnow::kernels::cuda
