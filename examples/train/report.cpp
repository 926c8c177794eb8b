// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/report.hpp"

#include <algorithm>
#include <cmath>

#include "train/settings.hpp"

namespace train {

const Run* Report::dense(std::uint64_t seed) const {
  const auto run = std::ranges::find_if(
      runs, [&](const Run& each) { return each.compressor == kNone && each.seed == seed; });
  return run != runs.end() ? &*run : nullptr;
}

std::vector<RowRuns> Report::rows() const {
  const std::size_t count = runs.size() / seeds;
  std::vector<RowRuns> rows(count);
  for (std::size_t i = 0; i < runs.size(); ++i) rows[i % count].push_back(&runs[i]);
  return rows;
}

double held_out_difference(const Run& run, const Run* dense) {
  if (dense == nullptr) return std::nan("");
  return run.curve.back().held_out_loss / dense->curve.back().held_out_loss - 1;
}

double dense_loss(const Report& report) {
  double most = std::nan("");
  for (const Run& run : report.runs) {
    if (run.compressor == kNone) most = std::fmax(most, run.curve.back().held_out_loss);
  }
  return most;
}

const Point* first_at(const Run& run, double loss) {
  const auto point = std::ranges::find_if(
      run.curve, [&](const Point& each) { return each.held_out_loss <= loss; });
  return point != run.curve.end() ? &*point : nullptr;
}

double bytes_saved(const Run& run) {
  return run.wire_bytes_per_step > 0 ? run.dense_wire_bytes_per_step / run.wire_bytes_per_step
                                     : std::nan("");
}

Spread training_losses(const RowRuns& row) {
  return spread(row, [](const Run& run) { return run.curve.back().training_loss; });
}

Spread held_out_losses(const RowRuns& row) {
  return spread(row, [](const Run& run) { return run.curve.back().held_out_loss; });
}

Spread held_out_differences(const RowRuns& row, const Report& report) {
  return spread(row,
                [&](const Run& run) { return held_out_difference(run, report.dense(run.seed)); });
}

}  // namespace train
