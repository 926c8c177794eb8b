// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "comm/call/completion_tracker.hpp"
#include "comm/call/health.hpp"
#include "comm/call/parameters.hpp"
#include "comm/call/setup.hpp"
#include "comm/plan/bucket.hpp"
#include "comm/stats/book.hpp"
#include "kernels/call_status.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stream_clock.hpp"

namespace winnow::comm {

/// The numbers of calls, and the outcome of those on a device, which return before they are done.
/// Where buckets lie in host memory only the numbers are left of it. Functions that wait fail the
/// AllReducer if the device or a peer has failed.
class DeviceCalls {
 public:
  DeviceCalls(Setup& setup, Health& health, Parameters& parameters, StatsBook& book);

  /// The number of the next call, equal on all ranks. Replays of a captured call count, too: the
  /// host knows of these after await_all.
  std::uint64_t number() const { return number_; }
  void set_number(std::uint64_t number);
  void advance() { ++number_; }

  /// Whether buckets lie on a device.
  bool any() const { return completions_ != nullptr; }
  /// The status of the call that is being enqueued, in device memory; null on the host.
  kernels::CallStatus* status() const { return any() ? &completions_->status() : nullptr; }
  const std::shared_ptr<CompletionTracker>& completions() const { return completions_; }
  /// The clock of the current call; null if the host's serves or the device cannot tell.
  kernels::StreamClock* clock() const noexcept;
  /// Whether the device measures the times of calls.
  bool has_clock() const { return clock_ != nullptr; }

  /// Makes room for a bucket's counts.
  void make_room(const Bucket& bucket);
  /// Enqueues the end of a call and sets `mark`, if not null, behind it. `clipped`: whether the
  /// host knows that sums were clipped.
  void end(const Bucket& bucket, bool clipped, kernels::StreamMark* mark);

  /// Learns the outcome of calls that have ended.
  void poll();
  /// Before a call in two levels: its first round depends on whether residuals hold anything
  /// outside of this rank's shards, as they do behind a call that put its gradients back. Calls of
  /// other buckets need no wait: they leave nothing outside of their own shards, or mark it. The
  /// bucket's last call ended long ago where others came between.
  void await_last(const Bucket& bucket);
  /// Before the host waits for the device: the device may still wait for messages of earlier calls,
  /// and it knows no deadline.
  void await_all();
  /// Waits for all calls if a graph may have been replayed since the last one.
  void await_replays();
  /// Waits for the messages of the current call.
  void await_messages();
  /// Waits for all calls and learns their outcome.
  void synchronize();

  /// If messages are work on a stream, ends the wait for a dead peer. The host itself may be
  /// waiting for space in the stream in the middle of a call. So this touches nothing that a call
  /// uses; the next look at the transport or at the completions does the rest.
  void start_watchdog();
  /// Waits for the device with a deadline, and learns the outcome of the last calls. Nothing may
  /// follow.
  void close() noexcept;

 private:
  void learn();

  Setup& setup_;
  Health& health_;
  Parameters& parameters_;
  StatsBook& book_;
  std::uint64_t number_ = 0;
  std::shared_ptr<CompletionTracker> completions_;
  std::unique_ptr<kernels::StreamClock> clock_;  // null if Options::stats is 0
  std::jthread watchdog_;
};

}  // namespace winnow::comm
