// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/memory_ops.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void fill(const Exec&, std::span<float>, float) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void store(const Exec&, std::span<std::byte>, std::span<const std::byte>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
