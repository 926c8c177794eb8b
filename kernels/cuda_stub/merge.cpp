// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/merge.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

std::size_t merge_scratch(std::size_t) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void merge(const Exec&, const DeviceMergeJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
