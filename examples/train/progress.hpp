// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "train/settings.hpp"

namespace train {

/// Whether this process's stderr ends on a terminal. Under a launcher every rank may have its own
/// pseudo-terminal, so this looks at the launcher's stderr.
bool stderr_is_terminal();

/// Shows how far all runs have come: on a terminal one line that is overwritten; otherwise, if
/// requested, a line each time the held-out loss is known. Only rank 0 prints.
class Progress {
 public:
  /// `total_steps`: over all runs.
  Progress(Show show, int rank, std::uint64_t total_steps);

  void begin_run(const std::string& compressor, std::uint64_t steps);
  /// Call after each step, with the recent mean training loss.
  void step_done(double training_loss);
  void held_out(double loss);
  /// Clears the line.
  void finish() const;

 private:
  using Clock = std::chrono::steady_clock;
  void write(const char* line_start, const char* line_end);
  std::string time_left() const;

  bool enabled_, terminal_;
  std::uint64_t total_steps_, total_done_ = 0;
  std::string compressor_;
  std::uint64_t steps_ = 0, step_ = 0;  // of this run: all steps, and those done
  double training_loss_ = 0, held_out_ = 0;
  Clock::time_point start_ = Clock::now(), written_;
};

}  // namespace train
