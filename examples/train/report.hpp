// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "train/spread.hpp"
#include "train/trainer.hpp"

namespace train {

/// Everything to report about the runs.
struct Report {
  std::string commit;
  std::string source;  ///< of the text
  std::uint64_t text_bytes = 0, text_fingerprint = 0;
  std::size_t parameters = 0;
  Recipe recipe;  ///< of the first run; others may take more steps, or another seed
  std::uint64_t seeds = 1;
  int ranks = 0;
  std::string topology, transport, device;
  std::vector<Run> runs;         ///< all rows of the first seed, then those of the next
  std::optional<double> target;  ///< held-out loss: which run reaches it first?

  /// The run without compression with which the others of its seed are compared; null if there is
  /// none.
  const Run* dense(std::uint64_t seed) const;
  /// The runs of each row, one for each seed.
  std::vector<RowRuns> rows() const;
  /// The runs of the first seed.
  std::span<const Run> first_seed() const { return std::span(runs).first(runs.size() / seeds); }
};

/// The last held-out loss of `run` over that of `dense`, minus one; NaN if there is no dense run.
double held_out_difference(const Run& run, const Run* dense);

/// The highest last held-out loss of the runs without compression; NaN if there are none.
double dense_loss(const Report& report);

/// The first point of `run` whose held-out loss is at most `loss`, or null.
const Point* first_at(const Run& run, double loss);

/// Dense bytes for each byte sent; NaN if a single rank sends nothing.
double bytes_saved(const Run& run);

Spread training_losses(const RowRuns& row);
Spread held_out_losses(const RowRuns& row);
/// To the dense runs of the same seeds.
Spread held_out_differences(const RowRuns& row, const Report& report);

/// A row has the means over its seeds, and the standard deviations of losses behind +-. With a
/// target, a second table says when each run reached it.
void write_table(std::ostream& out, const Report& report);
void write_json(std::ostream& out, const Report& report);
/// One line per point: compressor, schedule, step, seconds, training_loss, held_out_loss,
/// bytes_sent, seed.
void write_csv(std::ostream& out, const Report& report);

}  // namespace train
