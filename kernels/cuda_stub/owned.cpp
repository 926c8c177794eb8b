// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/owned.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void add_owned(const Exec&, const DeviceOwnedJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void store_owned(const Exec&, const DeviceOwnedJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void write_owned(const Exec&, const DeviceOwnedJob&, float, std::uint32_t*) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void take_owned(const Exec&, const DeviceOwnedJob&, std::span<float>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
