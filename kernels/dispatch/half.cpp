// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out) {
  WINNOW_EXPECTS(in.size() == out.size() && type != ElementType::float32,
                 "widen takes as many 16-bit elements as floats");
  dispatch(exec, &Bodies::widen, type, in, out);
}

void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  WINNOW_EXPECTS(in.size() == out.size() && type != ElementType::float32,
                 "narrow takes as many floats as 16-bit elements");
  dispatch(exec, &Bodies::narrow, type, in, out);
}

void fits(const Exec& exec, ElementType type, std::span<const float> in, float factor,
          std::uint32_t* too_large) {
  WINNOW_EXPECTS(type == ElementType::bf16 || type == ElementType::fp16,
                 "fits is asked of bf16 or fp16");
  WINNOW_EXPECTS(too_large != nullptr, "fits needs a word for its answer");
  dispatch(exec, &Bodies::fits, type, in, factor, too_large);
}

}  // namespace winnow::kernels
