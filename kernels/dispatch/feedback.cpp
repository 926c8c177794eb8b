// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback.hpp"

#include "kernels/arithmetic/element.hpp"
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay) {
  WINNOW_EXPECTS(elements.size() == residual.size(),
                 "elements and residual must have as many elements");
  dispatch(exec, &Bodies::feedback_add, elements, residual, decay);
}

void feedback_keep(const Exec& exec, std::span<float> residual, const ConstElements& gradient,
                   float decay, const Precondition& precondition) {
  WINNOW_EXPECTS(residual.size() == gradient.size(),
                 "residual and gradient must have as many elements");
  expect_gradient(gradient.type());
  dispatch(exec, &Bodies::feedback_keep, residual, gradient, decay, precondition);
}

}  // namespace winnow::kernels
