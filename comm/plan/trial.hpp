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

/// A race between plans of one bucket in its first calls: a compressed one, if predictions are too
/// close to trust; dense; and dense by Winnow's ring, if the transport has an allreduce of its own.
/// The calls are real: some by each plan in turn; the first few of each are untimed. Then the ranks
/// compare their times once and all take the same plan.
class Trial {
 public:
  /// Untimed calls of each plan: the first ones allocate, and selection settles.
  static constexpr std::size_t kSettling = 3;

  /// Calls of a race of so many plans, of which `timed` of each count.
  static constexpr std::size_t calls(std::size_t plans, int timed) {
    return plans * (kSettling + static_cast<std::size_t>(timed));
  }
  /// At most so many plans race.
  static constexpr std::size_t kMostPlans = 3;

  /// Plans of one bucket, compressed ones first.
  Trial(std::vector<Bucket> plans, int timed);

  Bucket& first() { return plans_.front(); }
  /// The plan of the next call. Not allowed once `complete`.
  Bucket& plan() { return plans_[seconds_.size() / (kSettling + timed_)]; }
  /// Whether the next call counts: the ranks should begin it together.
  bool counts() const { return seconds_.size() % (kSettling + timed_) >= kSettling; }
  /// Records that the call took `seconds` on this rank.
  void record(double seconds) { seconds_.push_back(seconds); }
  /// Whether every call of the race has been made.
  bool complete() const { return seconds_.size() == plans_.size() * (kSettling + timed_); }

  /// The plan to keep, whose reason now gives the measurement: the faster dense one, or a
  /// compressed one that took at most kAhead of its time. A call counts with the time of its
  /// slowest rank, which is what a trainer waits for; a plan counts with the median of its calls.
  /// Collective: one all-gather. Throws CommError.
  Bucket& settle(Transport& world, const Exec& exec, Deadline deadline);
  static constexpr double kAhead = 0.9;

 private:
  std::vector<Bucket> plans_;
  std::size_t timed_;
  std::vector<double> seconds_;  // this rank's calls so far
};

}  // namespace winnow::comm
