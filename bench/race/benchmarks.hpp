// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/ranks.hpp"

namespace winnow::bench {

/// What a measurement found, the same on all ranks.
struct Measured {
  std::string problem;  ///< why it could not run, else empty
  bool failed = false;  ///< and that is not because it does not fit the ranks or the size
  double seconds = 0;
  std::vector<std::pair<std::string, double>> counters;
};

/// A measurement of some rounds, which all ranks make together.
struct Work {
  std::string name;  ///< of the benchmark
  int rounds;
  std::function<Measured()> measure;
};

/// Runs Google Benchmark with `flags` on rank 0, which tells the other ranks what to measure, so
/// that all do the same number of rounds. The same works on all ranks. Returns the exit status.
int run_benchmarks(Rank& rank, std::string_view program, std::span<const Work> works,
                   std::span<const std::string> flags);

double median(std::vector<double> values);

}  // namespace winnow::bench
