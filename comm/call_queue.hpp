// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>
#include <winnow/allreducer.hpp>

#include "comm/fifo.hpp"

namespace winnow::comm {

/// Calls in flight: run one after another, in the order issued, so that all ranks run them in the
/// same order whatever they wait for first. Either by a thread of its own, which starts with the
/// first call, or by whoever waits. Once grown, it allocates nothing. One thread at a time may use
/// it, beside its own.
class CallQueue {
 public:
  using Run = std::function<void(std::span<const Segment>, ReduceOp)>;

  CallQueue(bool threaded, Run run) : threaded_(threaded), run_(std::move(run)) {}
  /// Runs what is still to be run; errors that nobody waited for are gone.
  ~CallQueue() { close(); }
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// Adds a call; the segments are copied, what they view is not. Returns its number, which one
  /// wait must follow.
  std::uint64_t submit(std::span<const Segment> segments, ReduceOp op);
  /// Returns when the call has run, or throws what it threw. Once for each number.
  void wait(std::uint64_t number);
  /// Whether the call has run. Without a thread it first runs the next one.
  bool test(std::uint64_t number);
  /// Whether every call has run.
  bool idle();
  /// What the destructor does. No call may follow.
  void close() noexcept;

 private:
  struct Call {
    std::vector<Segment> segments;
    ReduceOp op = ReduceOp::sum;
    std::exception_ptr error;
    bool awaited = true;  // its error is still to be asked for
  };
  using Lock = std::unique_lock<std::mutex>;

  void run_next(Lock& lock);
  void work();

  const bool threaded_;
  const Run run_;
  std::mutex mutex_;  // guards all below
  std::condition_variable issued_, done_;
  Fifo<Call> calls_;        // not popped yet
  std::uint64_t next_ = 0;  // number of the first call that has not run
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace winnow::comm
