// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.hpp"

#include <cmath>

namespace winnow::kernels::reference {

void scale(const Exec&, std::span<float> elements, float factor) {
  for (float& element : elements) element *= factor;
}

void all_finite(const Exec&, std::span<const float> elements, std::uint32_t* not_finite) {
  for (const float element : elements) {
    if (!std::isfinite(element)) *not_finite = 1;
  }
}

}  // namespace winnow::kernels::reference
