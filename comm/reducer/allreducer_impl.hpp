// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>
#include <winnow/allreducer.hpp>

#include "comm/plan/bucket.hpp"
#include "comm/plan/trial.hpp"
#include "comm/reducer/call_queue.hpp"
#include "comm/reducer/completion_tracker.hpp"
#include "comm/reducer/context.hpp"
#include "comm/reducer/debug_log.hpp"
#include "comm/reducer/last_resort.hpp"
#include "comm/reducer/stall_watchdog.hpp"
#include "comm/reducer/stats_book.hpp"
#include "comm/reducer/widened.hpp"
#include "comm/schedule/exchange.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/schedule/shards.hpp"
#include "comm/state/step_undo.hpp"
#include "comm/transport/failure.hpp"
#include "compress/compressor.hpp"
#include "compress/precondition.hpp"
#include "kernels/exec/stream_clock.hpp"

namespace winnow {

/// An AllReducer: construction (allreducer.cpp), the plan at a bucket's first call
/// (allreducer_plans.cpp), the calls (allreducer_calls.cpp), the outcome of calls on a device
/// (allreducer_device.cpp) and the state between calls (allreducer_state.cpp).
struct AllReducer::Impl {
  static Impl* make(const std::shared_ptr<Transport>& world, const Options& given,
                    const Exec& where, std::string refusal = {});
  /// `refusal`: see AllReducer::refuse, or empty.
  Impl(std::shared_ptr<Transport> world, const Options& given, const Exec& where,
       std::string refusal);
  ~Impl();

  LinkModel find_links();

  // Plans.
  unsigned stage_of(std::span<const Segment> segments) const;
  std::uint64_t id_of(std::span<const Segment> segments, ReduceOp of_call) const;
  std::uint64_t id_of_call(std::span<const Segment> segments) const;
  comm::World world() const;
  comm::Bucket& find(std::span<const Segment> segments);
  compress::Header agreement_of(const comm::Bucket& bucket) const;
  std::string lines_of(std::span<const Segment> segments) const;
  void compare_call(const comm::Bucket& bucket, std::span<const Segment> segments);
  comm::Bucket& next_plan(comm::Trial& trial);
  comm::Bucket& register_bucket(std::uint64_t id, std::span<const Segment> segments);
  comm::Bucket& plan(std::uint64_t id, std::span<const Segment> segments,
                     std::string native_only_reason);
  double dense_seconds(const comm::Bucket& plan, std::span<const Segment> segments) const;
  bool races_ring(const comm::Bucket& bucket, std::uint64_t bytes) const;
  void forget_old();
  void forget(std::uint64_t id);

  // Calls.
  /// With an output in `scattered`, a reduce-scatter of the one segment.
  void all_reduce(std::span<const Segment> segments, ReduceOp chosen, kernels::StreamMark* mark,
                  const Elements* scattered = nullptr);
  const comm::Bucket& call(std::span<const Segment> segments);
  void meet() noexcept;
  void begin(comm::Bucket& bucket);
  void precondition(comm::Bucket& bucket) const;
  bool reduce(const comm::Bucket& bucket);
  bool scatter();
  bool all_agree(bool finite);
  Elements own_shard(std::span<const Segment> segments) const;
  void deliver(std::span<const Segment> segments) const;
  bool sums_are_finite(std::span<const comm::Exchange> parts) const;
  void recover(const comm::Bucket& bucket);
  void put_back(float fill);
  void advise(comm::Failure& why, std::span<const Segment> segments) const noexcept;
  [[noreturn]] void fail(comm::Failure why);
  kernels::RandomKey random_of(const compress::Part& part, std::uint16_t number) const;
  std::uint64_t count_residuals() const;
  void look_ahead(std::uint64_t id, std::span<const float> weights, std::span<float> ahead,
                  float share);

  // The state between calls.
  void expect_idle(const char* caller) const;
  void keep_for_undo(const comm::Bucket& bucket);

  // The outcome of calls on a device.
  void poll();
  void synchronize();
  void start_watchdog();
  void hear();
  void expect_strays();
  void await_last_call(const comm::Bucket& bucket);
  void await_calls();
  void await_messages();
  void end_calls() noexcept;
  void expect_capturable(std::span<const Segment> segments) const;
  /// For the current call; null if the host's clock serves or the device cannot tell.
  kernels::StreamClock* call_clock() const noexcept;

  float averaged() const {
    return op == ReduceOp::average ? static_cast<float>(transport->size()) : 1.0F;
  }
  float factor() const { return 1.0F / averaged(); }
  /// A native collective ignores deadlines, so the ring serves if a deadline is set.
  std::uint64_t ring() const { return options.deadline > 0 ? 0 : links.ring; }
  double patience() const {
    constexpr double kDefault = 600;  // seconds
    return options.deadline > 0 ? options.deadline : kDefault;
  }
  Deadline deadline() const { return Deadline::after(std::chrono::duration<double>(patience())); }

  const comm::LastResort errors;
  comm::Context context;  // outlives what uses it
  Transport* transport;
  const Exec& exec;  // for buckets
  Options options;
  compress::Preconditioner preconditioner{"none"};
  std::unique_ptr<compress::Compressor> compressor;
  std::vector<compress::Compressor> stages;  // of its warm-up, and the compressor itself
  Topology topology;
  bool places_differ = false;  // some ranks' buckets are on devices, others' on hosts
  std::unique_ptr<const comm::Rails> rails;
  bool one_of_many = false;  // see OneOfMany
  LinkModel links;
  bool links_given = false;    // by the options, not measured
  std::uint64_t digest = 0;    // of all options that must be equal on all ranks
  std::string common_options;  // these, for the text of errors
  std::uint64_t calls = 0;
  comm::Parameters parameters;
  comm::StepUndo undo;  // of these
  std::unordered_map<std::uint64_t, comm::Bucket> buckets;
  std::unordered_map<std::uint64_t, comm::Trial> trials;  // of buckets whose plan is not settled
  struct Seen {
    std::uint64_t call;    // of the bucket, the last one
    std::size_t segments;  // which its plan takes memory for
    bool captured;         // a CUDA graph may use its memory
  };
  std::unordered_map<std::uint64_t, Seen> seen;  // of buckets and trials
  ReduceOp op = ReduceOp::sum;                   // of the current call
  const Elements* output = nullptr;              // likewise, if it is a reduce-scatter
  comm::Widened widened;                         // its segments
  std::vector<const comm::Schedule*> schedules;  // of the current call, one for each part
  std::vector<comm::Exchange> exchanges;         // likewise
  comm::StatsBook book;
  std::unique_ptr<kernels::StreamClock> clock;  // for calls on a device, if Options::stats is not 0
  std::unique_ptr<comm::DebugLog> log;
  std::shared_ptr<comm::CompletionTracker> completions;  // of calls on a device
  std::shared_ptr<comm::CallQueue> queue;
  std::uint64_t residuals = 0;          // number of residuals allocated
  std::optional<comm::Failure> unmet;   // why ranks could not compare the plan of a new bucket
  std::optional<comm::Failure> broken;  // why no more calls are possible
  // Of calls on a device, if messages are work on its stream.
  std::jthread watchdog;
};

}  // namespace winnow
