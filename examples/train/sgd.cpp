// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/sgd.hpp"

#include <cmath>
#include <numbers>

namespace train {

template <class Scalar>
void momentum_step(Scalar momentum, std::span<const Scalar> updates, Scalar* velocity,
                   Scalar* parameters) {
  Scalar* const p = parameters;
  Scalar* const v = velocity;
  const Scalar* const u = updates.data();
  for (std::size_t i = 0; i < updates.size(); ++i) {
    v[i] = momentum * v[i] + u[i];
    p[i] -= v[i];
  }
}

template void momentum_step(float, std::span<const float>, float*, float*);
template void momentum_step(double, std::span<const double>, double*, double*);

float Schedule::rate(std::uint64_t step) const {
  const auto at = static_cast<double>(step), first = static_cast<double>(warm_up);
  if (step < warm_up) return static_cast<float>(peak * (at + 1) / first);
  const double last = static_cast<double>(steps) - 1;
  const double done = last > first ? (at - first) / (last - first) : 0;
  const double height = (1 + std::cos(std::numbers::pi * done)) / 2;
  return static_cast<float>(peak * (last_share + (1 - last_share) * height));
}

}  // namespace train
