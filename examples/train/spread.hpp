// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "train/trainer.hpp"

namespace train {

/// Mean and standard deviation of a few numbers.
struct Spread {
  explicit Spread(std::span<const double> values) {
    const auto count = static_cast<double>(values.size());
    mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    if (values.size() > 1) deviation = std::sqrt(squares / (count - 1));
  }

  double mean;
  double deviation = 0;  ///< of the sample: over count - 1; 0 of a single number
};

/// The runs of one row of the table, one for each seed.
using RowRuns = std::vector<const Run*>;

/// Over of(run) of the row's runs.
template <class Of>
Spread spread(const RowRuns& row, const Of& of) {
  std::vector<double> values;
  for (const Run* run : row) values.push_back(of(*run));
  return Spread(values);
}

}  // namespace train
