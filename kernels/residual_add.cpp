// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/residual_add.hpp"

#include "kernels/cuda/residual_add.hpp"
#include "kernels/exec/dispatch.hpp"

namespace winnow::kernels {

namespace reference {
void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient);
}
namespace cpu {
void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient);
}

void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient) {
  WINNOW_EXPECTS(residual.size() == gradient.size(),
                 "residual and gradient must have as many elements");
  dispatch(exec, reference::residual_add, cpu::residual_add, cuda::residual_add, residual,
           gradient);
}

}  // namespace winnow::kernels
