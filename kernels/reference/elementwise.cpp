// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.hpp"

#include <cmath>

#include "kernels/arithmetic/feedback.hpp"

namespace winnow::kernels::reference {

void scale(const Exec&, std::span<float> elements, float factor) {
  for (float& element : elements) element *= factor;
}

void look_ahead(const Exec&, std::span<const float> weights, std::span<const float> residual,
                float share, std::span<float> ahead) {
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    ahead[i] = ahead_of(weights[i], share, residual[i]);
  }
}

void precondition(const Exec&, std::span<float> gradient, std::span<float> second,
                  const MomentStep& by) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto root = [](float x) { return std::sqrt(x); };
    const Preconditioned made = precondition_by(gradient[i], second[i], by, root);
    second[i] = made.second;
    gradient[i] = made.update;
  }
}

void all_finite(const Exec&, std::span<const float> elements, std::uint32_t* not_finite) {
  for (const float element : elements) {
    if (!std::isfinite(element)) *not_finite = 1;
  }
}

}  // namespace winnow::kernels::reference
