// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"
#include "kernels/half.hpp"

namespace winnow::kernels::cuda {

struct Widen {
  DeviceElements in;
  float* out;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float four[4];
    in.load(first, here, four);
    store_vector(out + first, here, four);
  }
};

struct Narrow {
  const float* in;
  DeviceElements out;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float four[4];
    load_vector(in + first, here, four);
    out.store(first, here, four);
  }
};

struct KeepRest {
  RestJob job;
  ElementRange range;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    float four[4];
    load_vector(job.sums.data() + first, here, four);
    bool exceeded = false;
    for (unsigned e = 0; e < 4; ++e) {
      if ((here >> e & 1) == 0 || !range.exceeded_by(four[e])) continue;
      exceeded = true;
      keep(first + e, four[e]);
    }
    if (exceeded && simt::published(job.too_large) == 0) simt::atomic_or(job.too_large, 1);
  }

 private:
  WINNOW_DEVICE void keep(std::uint64_t i, float sum) const {
    job.sums[i] = range.clip(sum);
    if (!job.keeper.keeps(job.base + i)) return;
    float& residual = job.residual[i];
    residual = job.keeper.add_rest(residual, sum, range);
  }
};

}  // namespace winnow::kernels::cuda
