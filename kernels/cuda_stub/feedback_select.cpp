// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback_select.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

std::size_t feedback_select_scratch(std::size_t, std::size_t) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void feedback_select(const Exec&, const DeviceSelectJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

std::size_t feedback_threshold_scratch(std::size_t) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void feedback_threshold(const Exec&, const DeviceThresholdJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
