// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/value_coding.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void feedback_quantize(const Exec&, const DeviceQuantizeJob&, const ValueFormat&,
                       const RandomKey&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void quantize(const Exec&, const ValueFormat&, const RandomKey&, std::span<float>,
              std::span<std::byte>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void dequantize(const Exec&, const ValueFormat&, std::uint64_t, std::span<const std::byte>,
                std::uint64_t, std::span<float>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void check_values(const Exec&, const ValueFormat&, std::uint64_t, std::span<const std::byte>,
                  std::uint32_t*) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
