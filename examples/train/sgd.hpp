// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "train/device/device.hpp"

namespace train {

/// Stochastic gradient descent with momentum: v = momentum * v + update, p = p - v, where an update
/// is rate * gradient. Reduce updates, not gradients: an element that waits in a residual then
/// keeps the rate of its own step (Karimireddy et al., Error Feedback Fixes SignSGD, 2019). Every
/// rank takes the same steps from the same gradients. Each operation rounds once, and the file is
/// compiled without contraction or machine flags, so the ranks' parameters stay equal to the last
/// bit.
class Sgd {
 public:
  explicit Sgd(float momentum, std::shared_ptr<Device<float>> device = cpu_device<float>())
      : momentum_(momentum), device_(std::move(device)), velocity_(device_) {}
  /// Both lie on the device and keep their size.
  void step(std::span<float> parameters, std::span<const float> updates) {
    velocity_.resize(parameters.size());
    device_->momentum_step(momentum_, updates, velocity_.data(), parameters.data());
  }

 private:
  float momentum_;
  std::shared_ptr<Device<float>> device_;
  Array<float> velocity_;
};

/// Device::momentum_step on the host.
template <class Scalar>
void momentum_step(Scalar momentum, std::span<const Scalar> updates, Scalar* velocity,
                   Scalar* parameters);

/// The learning rate of a run: it rises over the first `warm_up` steps to `peak`, then falls along
/// half a cosine to `last_share` of it at the last of `steps`.
struct Schedule {
  float peak, last_share;
  std::uint64_t warm_up, steps;

  float rate(std::uint64_t step) const;
};

}  // namespace train
