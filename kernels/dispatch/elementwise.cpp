// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void scale(const Exec& exec, std::span<float> elements, float factor) {
  dispatch(exec, &Bodies::scale, elements, factor);
}

void look_ahead(const Exec& exec, std::span<const float> weights, std::span<const float> residual,
                float share, std::span<float> ahead) {
  WINNOW_EXPECTS(weights.size() == ahead.size() && residual.size() == ahead.size(),
                 "weights, residual and result must have as many elements");
  dispatch(exec, &Bodies::look_ahead, weights, residual, share, ahead);
}

void precondition(const Exec& exec, std::span<float> gradient, std::span<float> second,
                  const MomentStep& by) {
  WINNOW_EXPECTS(gradient.size() == second.size(),
                 "gradient and second moment must have as many elements");
  dispatch(exec, &Bodies::precondition, gradient, second, by);
}

void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite) {
  WINNOW_EXPECTS(not_finite != nullptr, "all_finite needs a word for its answer");
  dispatch(exec, &Bodies::all_finite, elements, not_finite);
}

}  // namespace winnow::kernels
