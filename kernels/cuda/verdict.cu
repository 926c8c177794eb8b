// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/verdict.cuh"
#include "kernels/cuda/verdict.hpp"

namespace winnow::kernels::cuda {

void end_call(const Exec& exec, const CallEnd& end) {
  launch<EndCall>(exec, 1, end);
}

}  // namespace winnow::kernels::cuda
