// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "train/trainer.hpp"

namespace train {

/// Everything to report about the runs.
struct Report {
  std::string commit;
  std::string source;  ///< of the text
  std::uint64_t text_bytes = 0, text_fingerprint = 0;
  std::size_t parameters = 0;
  Recipe recipe;  ///< of the first run; others may take more steps
  int ranks = 0;
  std::string topology, transport, device;
  std::vector<Run> runs;
  std::optional<double> target;  ///< held-out loss: which run reaches it first?

  /// The run without compression with which the others are compared; null if there is none.
  const Run* dense() const;
};

/// The last held-out loss of `run` over that of `dense`, minus one; NaN if there is no dense run.
double held_out_difference(const Run& run, const Run* dense);

/// The highest last held-out loss of the runs without compression; NaN if there are none.
double dense_loss(const Report& report);

/// The first point of `run` whose held-out loss is at most `loss`, or null.
const Point* first_at(const Run& run, double loss);

/// 1234567 as 1,234,567.
std::string grouped(std::uint64_t value);

/// With a target, a second table says when each run reached it.
void write_table(std::ostream& out, const Report& report);
void write_json(std::ostream& out, const Report& report);
/// One line per point: compressor, schedule, step, seconds, training_loss, held_out_loss,
/// bytes_sent.
void write_csv(std::ostream& out, const Report& report);

}  // namespace train
