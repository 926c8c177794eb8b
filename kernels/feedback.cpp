// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback.hpp"

#include "kernels/cuda/feedback.hpp"
#include "kernels/exec/dispatch.hpp"

namespace winnow::kernels {

namespace reference {
void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay);
void feedback_keep(const Exec& exec, std::span<float> residual, std::span<const float> gradient,
                   float decay);
}  // namespace reference
namespace cpu {
void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay);
void feedback_keep(const Exec& exec, std::span<float> residual, std::span<const float> gradient,
                   float decay);
}  // namespace cpu

void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay) {
  WINNOW_EXPECTS(elements.size() == residual.size(),
                 "elements and residual must have as many elements");
  dispatch(exec, reference::feedback_add, cpu::feedback_add, cuda::feedback_add, elements, residual,
           decay);
}

void feedback_keep(const Exec& exec, std::span<float> residual, std::span<const float> gradient,
                   float decay) {
  WINNOW_EXPECTS(residual.size() == gradient.size(),
                 "residual and gradient must have as many elements");
  dispatch(exec, reference::feedback_keep, cpu::feedback_keep, cuda::feedback_keep, residual,
           gradient, decay);
}

}  // namespace winnow::kernels
