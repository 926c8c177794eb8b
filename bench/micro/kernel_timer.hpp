// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>

#include "kernels/exec/host_memory.hpp"

namespace winnow::bench {

/// Elements of the yardstick and of every kernel that passes over a whole bucket.
constexpr std::size_t kCount = 25'600'000;

/// One round of a measurement. Only `kernel` is timed.
struct Round {
  std::function<void()> kernel;
  std::function<void()> prepare = [] {};  ///< before the yardstick, which evicts what it touched
  std::function<void()> warm = [] {};     ///< after the yardstick: loads what is cached in real use
  std::size_t count = kCount;             ///< elements of the yardstick
};

/// Times kernels beside the yardstick, residual_add over Round::count elements, at most kCount, in
/// one thread. Every round runs both, one after the other, so that any disturbance hits both. Times
/// are the thread's CPU times: other processes do not count.
class KernelTimer {
 public:
  /// The only instance: the yardstick's memory exists once.
  static KernelTimer& get();

  /// Runs the benchmark's rounds. Counters: `ratio`, the median over the rounds of kernel time over
  /// yardstick time; `median_ms` and `yardstick_ms`. Returns the kernel's median in seconds.
  double run(benchmark::State& state, const Round& round);

 private:
  kernels::HostArray<float> residual_{kCount}, gradient_{kCount};
};

}  // namespace winnow::bench
