// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

namespace winnow::kernels {

// The arithmetic on one element, the same bits in every body, as in feedback.hpp.

/// A step of second moments: an element's is decay * second + weight * gradient^2.
struct MomentStep {
  float decay = 0, weight = 0;
  float correction = 1;  ///< of the bias of a moment that began as zero
  float floor = 0;       ///< added to the root
  float rate = 1;        ///< multiplies the result
};

struct Preconditioned {
  float second, update;
};

/// The gradient divided by the root of its second moment. Where the new moment would not be finite,
/// the old one stays, and the update is not finite either. `root` is the square root, rounded to
/// nearest, of the place where this runs. (Adam's: Kingma and Ba, 2015.)
template <class Root>
constexpr Preconditioned precondition_by(float gradient, float second, const MomentStep& by,
                                         const Root& root) {
  const float next = by.decay * second + by.weight * (gradient * gradient);
  if (!(next <= std::numeric_limits<float>::max())) {
    return {second, gradient * std::numeric_limits<float>::infinity()};
  }
  return {next, gradient / (root(next * by.correction) + by.floor) * by.rate};
}

}  // namespace winnow::kernels
