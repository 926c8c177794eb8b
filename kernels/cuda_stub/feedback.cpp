// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void feedback_add(const Exec&, std::span<float>, std::span<const float>, float) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void feedback_keep(const Exec&, std::span<float>, std::span<const float>, float) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
