// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

std::size_t eliasfano_decode_scratch(std::uint64_t, std::uint64_t) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void eliasfano_decode(const Exec&, const DeviceDecodeJob&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
