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

/// The result of a measurement, equal on all ranks.
struct Measured {
  std::string problem;  ///< why it could not run, or empty
  bool failed = false;  ///< it could not run although it fits the ranks and the size
  double seconds = 0;
  std::vector<std::pair<std::string, double>> counters;
  std::string label;
};

/// A measurement over some rounds, which all ranks make together.
struct Work {
  std::string name;  ///< of the benchmark
  int rounds;
  std::function<Measured()> measure;
};

/// Runs Google Benchmark with `flags` on rank 0, which tells the other ranks what to measure, so
/// that all do the same number of rounds. All ranks pass the same works. Returns the exit status.
int run_benchmarks(Rank& rank, std::string_view program, std::span<const Work> works,
                   std::span<const std::string> flags);

double median(std::vector<double> values);

}  // namespace winnow::bench
