// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback.hpp"

#include <cmath>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/feedback.hpp"

namespace winnow::kernels::reference {

void feedback_add(const Exec&, std::span<float> elements, std::span<const float> residual,
                  float decay) {
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] = feedback(elements[i], decay, residual[i]);
  }
}

void feedback_keep(const Exec&, std::span<float> residual, const ConstElements& gradient,
                   float decay, const Precondition& precondition) {
  for (std::size_t i = 0; i < residual.size(); ++i) {
    const auto root = [](float x) { return std::sqrt(x); };
    const auto [moment, update] =
        precondition.of(read_element(gradient, i), precondition.moment_of(i), residual[i], root);
    if (precondition.has_moment()) precondition.moment[i] = moment;
    const float acc = feedback(update, decay, residual[i]);
    if (std::isfinite(acc)) residual[i] = acc;
  }
}

}  // namespace winnow::kernels::reference
