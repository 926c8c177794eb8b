// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/verdict.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void end_call(const Exec&, const CallEnd&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
