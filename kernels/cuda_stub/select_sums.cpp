// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/select_sums.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

std::size_t select_sums_scratch(const OwnedSums&, std::uint32_t) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void select_sums(const Exec&, const DeviceSelectSumsJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void keep_sums(const Exec&, const DeviceKeepSumsJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
