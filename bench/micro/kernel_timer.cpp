// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/kernel_timer.hpp"

#include <algorithm>
#include <ctime>
#include <vector>

#include "kernels/residual_add.hpp"

namespace winnow::bench {
namespace {

constexpr int kRounds = 31;

double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

KernelTimer& KernelTimer::get() {
  static KernelTimer timer;
  return timer;
}

double KernelTimer::run(benchmark::State& state, const Round& round) {
  std::vector<double> kernel, yardstick, ratio;
  const auto residual = residual_.span().first(round.count);
  const auto gradient = gradient_.span().first(round.count);
  // A batch, since Iterations() would become part of the benchmark's name.
  while (state.KeepRunningBatch(kRounds)) {
    for (int i = 0; i < kRounds; ++i) {
      state.PauseTiming();
      round.prepare();
      yardstick.push_back(seconds([&] { kernels::residual_add(Exec{}, residual, gradient); }));
      round.warm();
      state.ResumeTiming();
      kernel.push_back(seconds(round.kernel));
      ratio.push_back(kernel.back() / yardstick.back());
    }
  }
  if (kernel.empty()) return 0;
  state.counters["ratio"] = median(ratio);
  state.counters["median_ms"] = 1e3 * median(kernel);
  state.counters["yardstick_ms"] = 1e3 * median(yardstick);
  return median(kernel);
}

}  // namespace winnow::bench
