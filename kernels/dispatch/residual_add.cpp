// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/residual_add.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient) {
  WINNOW_EXPECTS(residual.size() == gradient.size(),
                 "residual and gradient must have as many elements");
  dispatch(exec, &Bodies::residual_add, residual, gradient);
}

}  // namespace winnow::kernels
