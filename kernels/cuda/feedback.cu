// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/feedback.hpp"

namespace winnow::kernels::cuda {

void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay) {
  if (elements.empty()) return;
  launch<FeedbackAdd>(exec, blocks_of((elements.size() + 3) / 4),
                      {elements.data(), residual.data(), elements.size(), decay});
}

void feedback_keep(const Exec& exec, std::span<float> residual, std::span<const float> gradient,
                   float decay) {
  if (residual.empty()) return;
  launch<FeedbackKeep>(exec, blocks_of((residual.size() + 3) / 4),
                       {residual.data(), gradient.data(), residual.size(), decay});
}

}  // namespace winnow::kernels::cuda
