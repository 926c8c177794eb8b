// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/call_status.hpp"
#include "kernels/cuda/call_status.cuh"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

void end_call(const Exec& exec, const CallEnd& end) {
  launch<EndCall>(exec, 1, {end});
}

}  // namespace winnow::kernels::cuda
