// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

#include "comm/plan/bucket.hpp"

namespace winnow::comm {

/// A race between two plans of one bucket, in its first calls, where predictions are too close to
/// be relied on. The calls themselves are real: some by the first plan, then some by the second, of
/// each the first ones untimed. The ranks then compare their times once and all take the same plan.
class Trial {
 public:
  /// Calls by a plan before its time counts: the first ones allocate, and selection settles.
  static constexpr std::size_t kSettling = 3;

  /// `first` and `second` are plans of one bucket; `timed` calls of each count.
  Trial(Bucket first, Bucket second, int timed);

  Bucket& first() { return plans_[0]; }
  /// The plan of the next call. Not when `complete`.
  Bucket& plan();
  /// Its call took so many seconds on this rank.
  void record(double seconds);
  /// Every call of the race was made.
  bool complete() const { return seconds_.size() == 2 * (kSettling + timed_); }

  /// The plan to stay with, whose reason now says what was measured: the first where it took at
  /// most kAhead of the second's time, else the second. Of a call the fastest rank's time counts,
  /// the one that had to wait for nobody; of a plan the median of its calls. Collective: one
  /// all-gather. Throws CommError.
  Bucket& settle(Transport& world, const Exec& exec, Deadline deadline);
  static constexpr double kAhead = 0.9;

 private:
  Bucket plans_[2];
  std::size_t timed_;
  std::vector<double> seconds_;  // of this rank's calls so far
};

}  // namespace winnow::comm
