// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/stats/book.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "comm/plan/hash.hpp"
#include "comm/stats/fields.hpp"

namespace winnow::comm {
namespace {

void accumulate_numbers(Stats& totals, const Stats& call) {
  for (const StatsField& field : kStatsFields) {
    if (!field.adds_up) continue;
    std::visit([&](auto value) { totals.*value += call.*value; }, field.value);
  }
  if (totals.digest == 0) {
    totals.digest = call.digest;
  } else {
    totals.digest = Hash().add(totals.digest).add(call.digest).value();
  }
  totals.residual_norm = call.residual_norm;
}

void accumulate(Stats& totals, const Stats& call) {
  totals.schedule = call.schedule;
  totals.reason = call.reason;
  totals.coding = call.coding;
  accumulate_numbers(totals, call);
}

std::uint64_t compressed_count(const Bucket& bucket) {
  std::uint64_t count = 0;
  for (const BucketPart& part : std::span(bucket.parts).first(bucket.compressed)) {
    for (const compress::Piece& piece : part.part.pieces) count += piece.elements.size();
  }
  return count;
}

}  // namespace

void StatsBook::register_bucket(Bucket& bucket, std::span<const Segment> segments) {
  BucketStats stats{.id = bucket.id, .count = bucket.count, .compressed = compressed_count(bucket)};
  const auto named =
      std::ranges::find_if(segments, [](const Segment& segment) { return !segment.name.empty(); });
  if (named != segments.end()) stats.name = named->name;
  stats.totals.schedule = bucket.words.schedule;
  stats.totals.reason = bucket.words.reason;

  const std::lock_guard lock(mutex_);
  // Texts of calls will find their memory.
  constexpr std::size_t kCoding = 64;
  for (Stats* const texts : {&call_, &last_, &totals_, &stats.totals}) {
    texts->schedule.reserve(bucket.words.schedule.size());
    texts->reason.reserve(bucket.words.reason.size());
    texts->coding.reserve(kCoding);
  }
  const auto free = std::ranges::find(first_, 0U);
  bucket.number = static_cast<std::size_t>(free - first_.begin());
  if (free == first_.end()) {
    first_.reserve(first_.size() + 1);
    buckets_.emplace_back();
    first_.push_back(0);
  }
  first_[bucket.number] = begun_ + 1;
  buckets_[bucket.number] = std::move(stats);
}

void StatsBook::forget(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  first_[bucket] = 0;
  buckets_[bucket] = {};
}

void StatsBook::register_schedule(const std::string& schedule) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(schedules_, schedule, &Stats::schedule) != schedules_.end()) return;
  Stats stats;
  stats.schedule = schedule;
  schedules_.push_back(std::move(stats));
}

/// The account of a schedule; for a forgotten bucket without one, the account of the first plan.
Stats& StatsBook::of_schedule(const std::string& schedule) {
  const auto found = std::ranges::find(schedules_, schedule, &Stats::schedule);
  return found != schedules_.end() ? *found : schedules_.front();
}

void StatsBook::begin_trial(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  buckets_[bucket].trying = true;
}

void StatsBook::replan(const Bucket& bucket) {
  const std::lock_guard lock(mutex_);
  BucketStats& stats = buckets_[bucket.number];
  stats.trying = false;
  stats.compressed = compressed_count(bucket);
  stats.totals.schedule = bucket.words.schedule;
  stats.totals.reason = bucket.words.reason;
}

Stats& StatsBook::begin(const Bucket& bucket) {
  ++begun_;
  call_ = Stats{.calls = 1,
                .schedule = std::move(call_.schedule),  // texts keep their memory
                .reason = std::move(call_.reason),
                .coding = std::move(call_.coding),
                .count = bucket.count,
                .dense_wire_bytes = bucket.costs.dense_wire_bytes,
                .dense_seconds = bucket.costs.dense_seconds};
  call_.schedule = bucket.words.schedule;
  call_.reason = bucket.words.reason;
  call_.coding = bucket.words.coding;
  return call_;
}

void StatsBook::finish(const Bucket& bucket, std::uint64_t allocated) {
  const std::lock_guard lock(mutex_);
  call_.allocations = allocated - totals_.allocations;
  last_ = call_;
  last_number_ = begun_;
  last_bucket_ = bucket.number;
  accumulate(totals_, call_);
  accumulate(buckets_[bucket.number].totals, call_);
  accumulate_numbers(of_schedule(call_.schedule), call_);
}

void StatsBook::forget_times() {
  for (const StatsStage& stage : kStages) call_.*stage.seconds = 0;
}

void StatsBook::add_time(const kernels::StreamClock::Name& call, const double* stage,
                         double seconds) {
  const auto found = std::ranges::find(
      kStages, stage, [&](const StatsStage& known) { return &(call_.*known.seconds); });
  if (found == kStages.end()) return;
  double Stats::*const which = found->seconds;
  const std::lock_guard lock(mutex_);
  Stats& bucket = buckets_[call.bucket].totals;
  bucket.*which += seconds;
  of_schedule(bucket.schedule).*which += seconds;  // trials wait for each of their calls
  totals_.*which += seconds;
  if (call.number == last_number_) last_.*which += seconds;
}

void StatsBook::count(std::size_t bucket, const kernels::CallCounts& calls) {
  const auto add = [&](std::uint64_t Stats::*member, std::uint64_t count) {
    if (count == 0) return;
    const std::lock_guard lock(mutex_);
    Stats& totals = buckets_[bucket].totals;
    totals.*member += count;
    of_schedule(totals.schedule).*member += count;
    totals_.*member += count;
    if (last_bucket_ == bucket) last_.*member = 1;
  };
  add(&Stats::poisoned, calls.refused);
  add(&Stats::clipped, calls.clipped);
}

Stats StatsBook::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

Stats StatsBook::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::vector<Stats> StatsBook::schedules() const {
  const std::lock_guard lock(mutex_);
  std::vector<Stats> called;
  std::ranges::copy_if(schedules_, std::back_inserter(called),
                       [](const Stats& stats) { return stats.calls > 0; });
  return called;
}

std::vector<BucketStats> StatsBook::buckets() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::uint64_t, const BucketStats*>> known;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (first_[i] != 0) known.emplace_back(first_[i], &buckets_[i]);
  }
  std::ranges::sort(known);
  std::vector<BucketStats> found;
  for (const auto& [first, stats] : known) found.push_back(*stats);
  return found;
}

}  // namespace winnow::comm
