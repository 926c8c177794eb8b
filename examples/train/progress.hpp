// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "train/settings.hpp"

namespace train {

/// Whether what this process writes to stderr ends on a terminal. Under a launcher every rank may
/// have a pseudo-terminal of its own, so there it is the launcher's stderr that is looked at.
bool stderr_is_terminal();

/// Tells how far all runs have come: on a terminal one line that is written over, else, where
/// asked for always, a plain line each time the held-out loss is known. Silent on ranks but 0.
class Progress {
 public:
  /// `total_steps`: of all runs.
  Progress(Show show, int rank, std::uint64_t total_steps);

  void begin_run(const std::string& compressor, std::uint64_t steps);
  /// After each step, with the mean training loss of late.
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
  std::uint64_t steps_ = 0, step_ = 0;  // of this run: all, and those done
  double training_loss_ = 0, held_out_ = 0;
  Clock::time_point start_ = Clock::now(), written_;
};

}  // namespace train
