// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback.cuh"
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/feedback.hpp"

namespace winnow::kernels::cuda {

void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay) {
  launch_piece(exec, FeedbackAdd{elements.data(), residual.data(), elements.size(), decay});
}

void feedback_keep(const Exec& exec, std::span<float> residual, const ConstElements& gradient,
                   float decay, const Precondition& precondition) {
  launch_piece(exec, FeedbackKeep{residual.data(), device_elements(gradient), residual.size(),
                                  decay, precondition});
}

}  // namespace winnow::kernels::cuda
