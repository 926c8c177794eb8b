// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/sgd.hpp"

#include <cmath>
#include <numbers>

namespace train {

void Sgd::step(std::span<float> parameters, std::span<const float> updates) {
  velocity_.resize(parameters.size());
  float* const p = parameters.data();
  float* const v = velocity_.data();
  const float* const u = updates.data();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    v[i] = momentum_ * v[i] + u[i];
    p[i] -= v[i];
  }
}

float cosine_rate(float peak, float last_share, unsigned long long step, unsigned long long steps) {
  const double done = steps > 1 ? static_cast<double>(step) / static_cast<double>(steps - 1) : 0;
  const double height = (1 + std::cos(std::numbers::pi * done)) / 2;
  return static_cast<float>(peak * (last_share + (1 - last_share) * height));
}

}  // namespace train
