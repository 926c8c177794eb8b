// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/residual_add.hpp"

#include "kernels/arithmetic/feedback.hpp"

namespace winnow::kernels::reference {

void residual_add(const Exec&, std::span<float> residual, std::span<const float> gradient) {
  for (std::size_t i = 0; i < residual.size(); ++i) {
    residual[i] = add_gradient(residual[i], gradient[i]);
  }
}

}  // namespace winnow::kernels::reference
