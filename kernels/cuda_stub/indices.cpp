// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/indices.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void raw32_decode(const Exec&, const DeviceDecodeJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

std::size_t bitmap_decode_scratch(std::uint64_t) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void bitmap_decode(const Exec&, const DeviceDecodeJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
