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
#include "kernels/exec/stream_clock.hpp"

namespace winnow::comm {

/// What the calls of an AllReducer did: the one under way, the last, each bucket's and all. One
/// thread at a time writes; last, totals and buckets may be read by any thread. Allocates only at
/// the first calls of a bucket.
class StatsBook {
 public:
  /// Starts the account of a bucket and gives it its number.
  void meet(Bucket& bucket, std::span<const Segment> segments);
  /// The bucket stays with another plan than that of its first calls.
  void replan(const Bucket& bucket);
  /// Starts a call. Its stages add to what is returned, which is the same object every time.
  Stats& begin(const Bucket& bucket);
  /// The call under way, or the last if none is.
  Stats& call() { return call_; }
  const Stats& call() const { return call_; }
  /// The call is done: it counts. `allocated`: allocations since the AllReducer was made.
  void finish(const Bucket& bucket, std::uint64_t allocated);

  /// How many calls have begun: the name of the one under way, for the clock of a stream.
  std::uint64_t number() const { return begun_; }
  /// The stages of the call under way, as the host has timed them, do not count: their times come
  /// later.
  void forget_times();
  /// Seconds of a stage, one of those of call(), of a call that is finished. Of no other names.
  void add_time(const kernels::StreamClock::Name& call, const double* stage, double seconds);
  /// So many calls of a bucket, by its number, that are finished have become NaN.
  void poison(std::size_t bucket, std::uint64_t calls);

  Stats last() const;
  Stats totals() const;
  std::vector<BucketStats> buckets() const;  ///< in the order of first calls
  /// One of them; for the writing thread.
  const BucketStats& of(const Bucket& bucket) const { return buckets_[bucket.number]; }

 private:
  Stats call_;
  std::uint64_t begun_ = 0;
  mutable std::mutex mutex_;  // guards what follows where it is written or another thread reads
  Stats last_, totals_;
  std::uint64_t last_number_ = 0;  // of last_
  std::size_t last_bucket_ = 0;    // the same
  std::vector<BucketStats> buckets_;
};

}  // namespace winnow::comm
