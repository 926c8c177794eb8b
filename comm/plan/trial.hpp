// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

#include "comm/plan/bucket.hpp"

namespace winnow::comm {

/// A race between plans of one bucket in its first calls: a compressed one; dense; and dense by
/// Winnow's ring, if the transport has an allreduce of its own. The calls are real: some by each
/// plan, the first few untimed. Then the ranks compare their times. Plans that are nearly as fast
/// as the best race on, up to kRounds times. All ranks keep the same plan.
///
/// Calls by the compressed plan follow each other, since a dense one changes what it finds in the
/// residual. Calls by the dense plans alternate, so that neither finds its own scratch in the
/// caches, where a trainer's other work would not leave it either.
class Trial {
 public:
  /// Untimed calls of each plan in each round: the first ones allocate, and selection settles.
  static constexpr std::size_t kSettling = 3;
  /// At most so many plans race.
  static constexpr std::size_t kMostPlans = 3;
  static constexpr std::size_t kRounds = 3;
  /// A compressed plan must take at most this share of dense's time.
  static constexpr double kAhead = 0.9;
  /// Plans that take at most so many times as long as the best one race on.
  static constexpr double kClose = 1.15;

  /// The most calls of a race of so many plans. `timed`: calls of each plan that count in a round.
  static constexpr std::size_t most_calls(std::size_t plans, int timed) {
    return kRounds * plans * (kSettling + static_cast<std::size_t>(timed));
  }

  /// Plans of one bucket, a compressed one first. If that takes at most `enough` seconds in its
  /// first round, no other is tried.
  Trial(std::vector<Bucket> plans, int timed, double enough);

  Bucket& first() { return plans_.front(); }
  /// The plan of the next call. Not allowed if the ranks are due to compare.
  Bucket& plan() { return plans_[leg_[seconds_.size()].plan]; }
  /// Whether the next call counts: the ranks should begin it together.
  bool counts() const { return leg_[seconds_.size()].counts; }
  /// Records that the call took `seconds` on this rank.
  void record(double seconds) { seconds_.push_back(seconds); }
  /// Whether the ranks must compare before the next call.
  bool due() const { return seconds_.size() == leg_.size(); }

  /// The plan to keep, whose reason now gives the measurement, or null if the race goes on. It is
  /// the faster dense one, or a compressed one that took at most kAhead of its time. A call counts
  /// with the time of its slowest rank, which is what a trainer waits for; a plan counts with the
  /// median of its calls. Collective: one all-gather. Throws CommError.
  Bucket* compare(Transport& world, const Exec& exec, Deadline deadline);

 private:
  struct Call {
    std::size_t plan;
    bool counts;
  };

  void begin_leg(std::span<const std::size_t> plans);
  void end_leg(std::span<const double> of_all_ranks);
  std::string medians_text() const;
  Bucket* keep(std::size_t plan, std::string reason);

  std::vector<Bucket> plans_;
  std::size_t timed_;
  double enough_;                          // 0: all plans are tried
  std::vector<Call> leg_;                  // up to the next comparison
  std::vector<double> seconds_;            // this rank's calls of the leg so far
  std::vector<std::vector<double>> slow_;  // timed calls of each plan, with their slowest ranks
  std::size_t rounds_ = 0;                 // that are over
};

}  // namespace winnow::comm
