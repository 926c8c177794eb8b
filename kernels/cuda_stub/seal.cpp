// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/seal.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void seal(const Exec&, const DeviceSealJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void seal_raw32(const Exec&, const DeviceSealJob&, std::uint64_t, std::span<const std::uint32_t>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void seal_eliasfano(const Exec&, const DeviceSealJob&, std::uint64_t,
                    std::span<const std::uint32_t>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void seal_bitmap(const Exec&, const DeviceSealJob&, std::uint64_t, std::span<const std::uint32_t>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
