// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace winnow::kernels {

// The arithmetic on one element, the same bits in every body, as in feedback.hpp.

/// A moment of an element's gradients, and what a step sends in the gradient's place.
struct Preconditioned {
  float moment, update;
};

/// Where the new moment would not be finite, the old one stays, and the update is not finite
/// either.
constexpr bool is_moment(float next) {
  return next <= std::numeric_limits<float>::max() && next >= -std::numeric_limits<float>::max();
}

/// A step of second moments: decay * moment + weight * gradient^2.
struct SecondMomentStep {
  float decay = 0, weight = 0;
  float correction = 1;  ///< of the bias of a moment that began as zero
  float floor = 0;       ///< added to the root
  float rate = 1;        ///< multiplies the result

  /// `steps`: gradients that the moment knows, this step's included.
  static SecondMomentStep of(double decay, double epsilon, std::uint64_t steps, float rate) {
    const double known = 1 - std::pow(decay, static_cast<double>(steps));
    return {.decay = static_cast<float>(decay),
            .weight = static_cast<float>(1 - decay),
            .correction = static_cast<float>(1 / known),
            .floor = static_cast<float>(epsilon),
            .rate = rate};
  }
};

/// The gradient divided by the root of its second moment. `root` is the square root, rounded to
/// nearest, of the place where this runs. (Adam's: Kingma and Ba, 2015.)
template <class Root>
constexpr Preconditioned divided_by_moment(float gradient, float moment, const SecondMomentStep& by,
                                           const Root& root) {
  const float next = by.decay * moment + by.weight * (gradient * gradient);
  if (!is_moment(next)) return {moment, gradient * std::numeric_limits<float>::infinity()};
  return {next, gradient / (root(next * by.correction) + by.floor) * by.rate};
}

/// A step of momentum: momentum * moment + gradient.
struct MomentumStep {
  float momentum = 0;
  float rate = 1;  ///< multiplies the result
};

/// The gradient's momentum in its place. Where nothing waits in the residual, all having been sent,
/// it begins anew if that is `masked`. (Momentum correction and factor masking: Lin et al., Deep
/// Gradient Compression, 2018.)
constexpr Preconditioned with_momentum(float gradient, float moment, bool masked,
                                       const MomentumStep& by) {
  const float next = by.momentum * (masked ? 0.0F : moment) + gradient;
  return {is_moment(next) ? next : moment, next * by.rate};
}

/// The gradients of a span as error feedback sees them.
struct Precondition {
  enum class Kind : std::uint8_t { none, rate, second_moment, momentum };

  Kind kind = Kind::none;
  float rate = 1;           ///< of Kind::rate
  float* moment = nullptr;  ///< of the span's elements, in the memory of these; takes the step
  bool masked = false;      ///< momentum begins anew where the residual is 0
  SecondMomentStep divide = {};
  MomentumStep add = {};

  constexpr bool has_moment() const { return moment != nullptr; }
  /// The moment of element number i, if there are any.
  constexpr float moment_of(std::size_t i) const { return has_moment() ? moment[i] : 0; }

  /// The next moment of an element, and its update.
  template <class Root>
  constexpr Preconditioned of(float gradient, float before, float residual,
                              const Root& root) const {
    switch (kind) {
      case Kind::second_moment:
        return divided_by_moment(gradient, before, divide, root);
      case Kind::momentum:
        return with_momentum(gradient, before, masked && residual == 0, add);
      case Kind::rate:
        return {before, gradient * rate};
      case Kind::none:
        break;
    }
    return {before, gradient};
  }
};

}  // namespace winnow::kernels
