// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace winnow::compress {

/// Adds the time from its making to its end to `seconds`, but for what others add to `inner`
/// meanwhile: the time of a stage within this one, counted apart. Null: of no interest.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds, const double* inner = nullptr)
      : seconds_(seconds), inner_(inner), inner_before_(inner == nullptr ? 0 : *inner) {}
  explicit Stopwatch(double& seconds) : Stopwatch(&seconds) {}
  ~Stopwatch() {
    if (seconds_ == nullptr) return;
    const std::chrono::duration<double> elapsed = Clock::now() - start_;
    *seconds_ += elapsed.count() - (inner_ == nullptr ? 0 : *inner_ - inner_before_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  double* seconds_;
  const double* inner_;
  double inner_before_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace winnow::compress
