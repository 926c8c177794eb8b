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

void feedback_keep(const Exec& exec, std::span<float> residual, std::span<const float> gradient,
                   float decay) {
  launch_piece(exec, FeedbackKeep{residual.data(), gradient.data(), residual.size(), decay});
}

}  // namespace winnow::kernels::cuda
