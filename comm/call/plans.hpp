// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "comm/call/call_memory.hpp"
#include "comm/call/call_queue.hpp"
#include "comm/call/device_calls.hpp"
#include "comm/call/health.hpp"
#include "comm/call/parameters.hpp"
#include "comm/call/request.hpp"
#include "comm/call/setup.hpp"
#include "comm/plan/bucket.hpp"
#include "comm/plan/trial.hpp"
#include "comm/stats/book.hpp"
#include "comm/stats/log.hpp"
#include "comm/transport/failure.hpp"

namespace winnow::comm {

/// The plan of a call.
struct Planned {
  Bucket& bucket;
  Trial* trial;  ///< which the call is a part of, or null
  /// Why ranks could not compare their calls, or why there is no memory for this one: it can only
  /// fail, with its gradients in the residuals.
  std::optional<Failure> unmet;
};

/// The buckets of an AllReducer: each is planned at its first call, when ranks compare its plan,
/// and again at the end of a trial.
class Plans {
 public:
  /// `memory` and `queue` are those of the calls: a new plan makes room in them.
  Plans(const Setup& setup, Health& health, Parameters& parameters, DeviceCalls& device_calls,
        StatsBook& book, DebugLog& log, CallMemory& memory, CallQueue& queue);

  /// The plan of the current call, whose segments are in memory.segments afterwards. Collective at
  /// the first call of a bucket. Throws UsageError on every rank if ranks make different calls.
  Planned find(const Request& request);
  /// Leaves no trace of a bucket; one that a CUDA graph may use stays.
  void forget(const Request& request);
  /// Why the call cannot be captured into a CUDA graph, or empty.
  std::string refuse_capture(const Request& request) const;

 private:
  struct Seen {
    std::uint64_t call;    // of the bucket, the last one
    std::size_t segments;  // which its plan takes memory for
    bool captured;         // a CUDA graph may use its memory
  };

  unsigned stage_of(std::span<const Segment> segments) const;
  std::uint64_t id_of(const Request& request) const;
  compress::Header agreement_of(const Bucket& bucket) const;
  std::optional<Failure> compare(const Bucket& bucket, const Request& request) const;
  Bucket& next_plan(Trial& trial);
  Planned add(std::uint64_t id, const Request& request);
  Bucket& plan(std::uint64_t id, const Request& request);
  Bucket& plan_trial(Bucket bucket, bool by_ring, const Request& request);
  Bucket plan_by(std::uint64_t id, const Options& options, const World& world,
                 const Request& request);
  double dense_seconds(const Bucket& bucket, const Request& request) const;
  bool races_ring(const Bucket& bucket, const Request& request) const;
  void forget_old();
  void forget(std::uint64_t id);

  const Setup& setup_;
  Health& health_;
  Parameters& parameters_;
  DeviceCalls& device_calls_;
  StatsBook& book_;
  DebugLog& log_;
  CallMemory& memory_;
  CallQueue& queue_;
  std::unordered_map<std::uint64_t, Bucket> buckets_;
  std::unordered_map<std::uint64_t, Trial> trials_;  // of buckets whose plan is not settled
  std::unordered_map<std::uint64_t, Seen> seen_;     // of buckets and trials
};

}  // namespace winnow::comm
