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

/// A race between two plans of one bucket in its first calls, for predictions too close to trust.
/// The calls are real: some by the first plan, then some by the second; the first few of each are
/// untimed. Then the ranks compare their times once and all take the same plan.
class Trial {
 public:
  /// Untimed calls of each plan: the first ones allocate, and selection settles.
  static constexpr std::size_t kSettling = 3;

  /// `first` and `second` are plans of one bucket; `timed` calls of each count.
  Trial(Bucket first, Bucket second, int timed);

  Bucket& first() { return plans_[0]; }
  /// The plan of the next call. Not allowed once `complete`.
  Bucket& plan() { return plans_[seconds_.size() / (kSettling + timed_)]; }
  /// Records that the call took `seconds` on this rank.
  void record(double seconds) { seconds_.push_back(seconds); }
  /// Whether every call of the race has been made.
  bool complete() const { return seconds_.size() == 2 * (kSettling + timed_); }

  /// The plan to keep, whose reason now gives the measurement: the first if it took at most kAhead
  /// of the second's time, else the second. A call counts with the time of its fastest rank, the
  /// one that waited for nobody; a plan counts with the median of its calls. Collective: one
  /// all-gather. Throws CommError.
  Bucket& settle(Transport& world, const Exec& exec, Deadline deadline);
  static constexpr double kAhead = 0.9;

 private:
  Bucket plans_[2];
  std::size_t timed_;
  std::vector<double> seconds_;  // this rank's calls so far
};

}  // namespace winnow::comm
