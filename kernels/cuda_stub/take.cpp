// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/take.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void take(const Exec&, std::span<float>, std::uint32_t, std::span<const std::uint32_t>,
          std::span<float>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void put(const Exec&, std::span<float>, std::uint32_t, const SparseView&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
