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

void divide_by_moment(const Exec&, std::span<float> gradient, std::span<float> moment,
                      const SecondMomentStep& by) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto root = [](float x) { return std::sqrt(x); };
    const Preconditioned made = divided_by_moment(gradient[i], moment[i], by, root);
    moment[i] = made.moment;
    gradient[i] = made.update;
  }
}

void correct_momentum(const Exec&, std::span<float> gradient, std::span<float> moment,
                      std::span<const float> residual, const MomentumStep& by) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const bool masked = !residual.empty() && residual[i] == 0;
    const Preconditioned made = with_momentum(gradient[i], moment[i], masked, by);
    moment[i] = made.moment;
    gradient[i] = made.update;
  }
}

void all_finite(const Exec&, std::span<const float> elements, std::uint32_t* not_finite) {
  for (const float element : elements) {
    if (!std::isfinite(element)) *not_finite = 1;
  }
}

}  // namespace winnow::kernels::reference
