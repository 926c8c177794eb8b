// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/split.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

std::size_t split_scratch(const Partition&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void split_by_owner(const Exec&, const DeviceSplitJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void positions_of(const Exec&, const Partition&, std::uint32_t, std::span<const std::uint32_t>,
                  std::span<std::uint32_t>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
