// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/stats.hpp>

#include "comm/plan/bucket.hpp"
#include "kernels/call_status.hpp"
#include "kernels/exec/stream_clock.hpp"

namespace winnow::comm {

/// Statistics of an AllReducer: of the current and the last call, and the totals of each bucket,
/// each schedule and all calls. One thread at a time writes; any thread may read last, totals and
/// buckets. Allocates only at the first calls of a bucket.
class StatsBook {
 public:
  /// Starts a bucket's account and numbers the bucket.
  void register_bucket(Bucket& bucket, std::span<const Segment> segments);
  /// Drops the account of a bucket, given by number; another bucket gets its number.
  void forget(std::size_t bucket);
  /// Starts the account of a plan's schedule, if it has none. Before the plan's first call.
  void register_schedule(const std::string& schedule);
  /// Notes that the bucket's first calls try several plans.
  void begin_trial(std::size_t bucket);
  /// Notes the plan that the bucket keeps at the end.
  void replan(const Bucket& bucket);
  /// Starts a call. Its stages add to the returned object, the same one every time.
  Stats& begin(const Bucket& bucket);
  /// The current call, or the last if none is under way.
  Stats& call() { return call_; }
  const Stats& call() const { return call_; }
  /// Counts the call, which is done. `allocated`: allocations since the AllReducer was made.
  void finish(const Bucket& bucket, std::uint64_t allocated);

  /// How many calls have begun: names the current one for the clock of a stream.
  std::uint64_t number() const { return begun_; }
  /// Drops the host's stage times of the current call: the device's times come later.
  void forget_times();
  /// Adds the seconds of a stage, which is a field of call(), to the finished call of that name.
  /// Ignores other names.
  void add_time(const kernels::StreamClock::Name& call, const double* stage, double seconds);
  /// Adds what the device has counted of the finished calls of a bucket, given by number.
  void count(std::size_t bucket, const kernels::CallCounts& calls);

  Stats last() const;
  Stats totals() const;
  std::vector<BucketStats> buckets() const;  ///< in the order of first calls
  std::vector<Stats> schedules() const;      ///< that calls went by
  /// One bucket's account; for the writing thread.
  const BucketStats& of(const Bucket& bucket) const { return buckets_[bucket.number]; }

 private:
  Stats& of_schedule(const std::string& schedule);

  Stats call_;
  std::uint64_t begun_ = 0;
  mutable std::mutex mutex_;  // guards what follows against readers on other threads
  Stats last_, totals_;
  std::uint64_t last_number_ = 0;  // of last_
  std::size_t last_bucket_ = 0;    // likewise
  std::vector<BucketStats> buckets_;
  std::vector<Stats> schedules_;      // of all calls by each, without the texts of calls
  std::vector<std::uint64_t> first_;  // of buckets_: the number of their first call; 0: forgotten
};

}  // namespace winnow::comm
