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

void keep_rest(const Exec& exec, const RestJob& job) {
  WINNOW_EXPECTS(job.type == ElementType::bf16 || job.type == ElementType::fp16,
                 "keep_rest takes sums for bf16 or fp16");
  WINNOW_EXPECTS(job.sums.size() == job.residual.size(),
                 "keep_rest takes as many residuals as sums");
  WINNOW_EXPECTS(job.too_large != nullptr, "keep_rest needs a word for too_large");
  dispatch(exec, &Bodies::keep_rest, job);
}

}  // namespace winnow::kernels
