// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

namespace train {

/// Stochastic gradient descent with momentum: v = momentum * v + update, p = p - v, where an update
/// is rate * gradient. Reduce updates, not gradients: what waits in a residual then counts with the
/// rate of the step that it came from (Karimireddy et al., Error Feedback Fixes SignSGD, 2019).
/// Every rank takes the same steps from the same gradients; one rounding an operation, in a file
/// compiled without contraction or machine flags, keeps their parameters equal to the last bit.
class Sgd {
 public:
  explicit Sgd(float momentum) : momentum_(momentum) {}
  void step(std::span<float> parameters, std::span<const float> updates);

 private:
  float momentum_;
  std::vector<float> velocity_;
};

/// `peak` at step 0, falling along half a cosine to `last_share` of it at the last of `steps`.
float cosine_rate(float peak, float last_share, unsigned long long step, unsigned long long steps);

}  // namespace train
