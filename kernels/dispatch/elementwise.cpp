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

void divide_by_moment(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      const SecondMomentStep& by) {
  WINNOW_EXPECTS(gradient.size() == moment.size(),
                 "gradient and moment must have as many elements");
  dispatch(exec, &Bodies::divide_by_moment, gradient, moment, by);
}

void correct_momentum(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      std::span<const float> residual, const MomentumStep& by) {
  WINNOW_EXPECTS(
      gradient.size() == moment.size() && (residual.empty() || gradient.size() == residual.size()),
      "gradient, moment and residual must have as many elements");
  dispatch(exec, &Bodies::correct_momentum, gradient, moment, residual, by);
}

void precondition(const Exec& exec, std::span<float> gradient, std::span<const float> residual,
                  const Precondition& by) {
  const std::span<float> moment(by.moment, by.has_moment() ? gradient.size() : 0);
  switch (by.kind) {
    case Precondition::Kind::none:
      break;
    case Precondition::Kind::rate:
      scale(exec, gradient, by.rate);
      break;
    case Precondition::Kind::second_moment:
      divide_by_moment(exec, gradient, moment, by.divide);
      break;
    case Precondition::Kind::momentum:
      correct_momentum(exec, gradient, moment, by.masked ? residual : std::span<const float>(),
                       by.add);
  }
}

void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite) {
  WINNOW_EXPECTS(not_finite != nullptr, "all_finite needs a word for its answer");
  dispatch(exec, &Bodies::all_finite, elements, not_finite);
}

}  // namespace winnow::kernels
