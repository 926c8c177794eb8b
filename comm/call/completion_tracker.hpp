// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/failure.hpp"
#include "kernels/call_status.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

/// The ends of stream-ordered calls, in stream order, and what the host learns of them. One thread
/// at a time enqueues; any thread may call `done`, `test` and `wait`. The destructor waits for the
/// device.
class CompletionTracker {
 public:
  /// For calls on where.stream of the current device. A wait for the next end gives up after
  /// `patience` seconds.
  CompletionTracker(const Exec& where, double patience);

  /// The status of the call that is being enqueued.
  kernels::CallStatus& status();
  /// Makes room for calls of buckets below `buckets`; allocates if there are more than before.
  void make_room(std::size_t buckets);
  /// Enqueues the end of a bucket's call. During capture: the end of each replay, which `done`
  /// counts as the call before. `clipped`: whether the host knows that sums were clipped.
  void end(std::size_t bucket, bool clipped);

  /// Calls whose ends are enqueued, and those up to the last one of a bucket.
  std::uint64_t ended() const { return ended_; }
  std::uint64_t ended(std::size_t bucket) const { return last_[bucket]; }
  /// How many of them are known to be done, without asking the device.
  std::uint64_t done() const;
  /// Numbers the calls from here on: the next one, if no graph is replayed before it, is `number`.
  void set_next(std::uint64_t number);
  /// CallStatus::call of the next call, once the device is waited for; a replay counts, too.
  std::uint64_t next() const;
  /// Whether a call was captured, so that there may be replays.
  bool has_captured() const { return captured_; }

  /// Whether the first `calls` of them are done and, if one was captured, all replays on the
  /// stream.
  bool test(std::uint64_t calls) const;
  /// Returns when they are done. Throws CommError if no call ends for too long, CudaError if the
  /// device has failed.
  void wait(std::uint64_t calls) const;
  /// Returns when they are done, or when `stop` returns true, which is called between looks at the
  /// device and may pause.
  void wait(std::uint64_t calls, const std::function<bool()>& stop) const;

  /// Makes every later call fail. For any thread.
  void fail(const Failure& why);
  /// The failure that fail() was given, or that a call found in a message; empty if there is none.
  /// Any thread may call it.
  std::optional<Failure> failure() const;
  /// Calls of a bucket since the last time this was asked.
  kernels::CallCounts counts(std::size_t bucket);
  std::size_t buckets() const { return polled_.size(); }
  /// The stream may be destroyed now; later questions are answered as if all calls were done.
  void close() { closed_ = true; }

 private:
  static constexpr std::size_t kBlock = 512;  // buckets

  kernels::CallReport& report() const { return report_.span().front(); }
  kernels::CallCounts& counts_of(std::size_t bucket) {
    return counts_[bucket / kBlock].span()[bucket % kBlock];
  }

  Exec exec_;
  std::chrono::duration<double> patience_;
  kernels::PlaceArray<kernels::CallStatus> status_;
  // Page-locked words, which the device writes.
  mutable kernels::PlaceArray<kernels::CallReport> report_;
  std::vector<kernels::PlaceArray<kernels::CallCounts>> counts_;
  std::vector<kernels::CallCounts> polled_;  // of counts_, by bucket
  std::vector<std::uint64_t> last_;          // ended() then, by bucket
  std::atomic<std::uint64_t> ended_ = 0;
  std::atomic<bool> captured_ = false, closed_ = false;
  mutable std::mutex mutex_;  // guards failure_
  std::optional<Failure> failure_;
};

}  // namespace winnow::comm
