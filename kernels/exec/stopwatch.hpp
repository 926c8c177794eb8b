// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>

#include "kernels/exec/stream_clock.hpp"

namespace winnow::kernels {

/// Adds the host's time from its making to its end to `seconds`, but for what others add to `inner`
/// and `innermost` meanwhile: times of stages within this one, counted apart. Null: of no interest.
/// Is a stage of that name for the clock of a stream.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds, const double* inner = nullptr,
                     const double* innermost = nullptr)
      : seconds_(seconds),
        inner_{inner, innermost},
        before_(counted_apart()),
        on_stream_(seconds) {}
  explicit Stopwatch(double& seconds) : Stopwatch(&seconds) {}
  ~Stopwatch() {
    if (seconds_ == nullptr) return;
    const std::chrono::duration<double> elapsed = Clock::now() - start_;
    *seconds_ += elapsed.count() - (counted_apart() - before_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  double counted_apart() const {
    double sum = 0;
    for (const double* seconds : inner_) sum += seconds == nullptr ? 0 : *seconds;
    return sum;
  }

  double* seconds_;
  std::array<const double*, 2> inner_;
  double before_;
  StreamClock::Stage on_stream_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace winnow::kernels
