// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/elementwise.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void scale(const Exec&, std::span<float>, float) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void all_finite(const Exec&, std::span<const float>, std::uint32_t*) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void zero(const Exec&, std::span<std::byte>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
