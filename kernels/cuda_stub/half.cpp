// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/half.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void widen(const Exec&, ElementType, std::span<const std::uint16_t>, std::span<float>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void narrow(const Exec&, ElementType, std::span<const float>, std::span<std::uint16_t>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void fits(const Exec&, ElementType, std::span<const float>, float, std::uint32_t*) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
