// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/add_to.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void add_to(const Exec&, std::span<float>, std::uint32_t, const DeviceTerm&, float,
            std::uint32_t*) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void put_back(const Exec&, std::span<float>, std::uint32_t, const SparseView&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void ordered_sum(const Exec&, const DeviceSumJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
