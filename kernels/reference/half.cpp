// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"

#include <cmath>

#include "kernels/arithmetic/half.hpp"

namespace winnow::kernels::reference {

void widen(const Exec&, ElementType type, std::span<const std::uint16_t> in, std::span<float> out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = type == ElementType::bf16 ? widen_bf16(in[i]) : widen_fp16(in[i]);
  }
}

void narrow(const Exec&, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = type == ElementType::bf16 ? narrow_bf16(in[i]) : narrow_fp16(in[i]);
  }
}

void fits(const Exec&, ElementType type, std::span<const float> in, float factor,
          std::uint32_t* too_large) {
  for (const float x : in) {
    const float product = x * factor;
    const std::uint16_t half =
        type == ElementType::bf16 ? narrow_bf16(product) : narrow_fp16(product);
    if (!std::isfinite(type == ElementType::bf16 ? widen_bf16(half) : widen_fp16(half))) {
      *too_large = 1;
    }
  }
}

}  // namespace winnow::kernels::reference
