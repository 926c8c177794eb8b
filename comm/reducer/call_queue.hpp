// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>
#include <winnow/allreducer.hpp>

#include "comm/reducer/call_ends.hpp"
#include "comm/transport/fifo.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

/// Calls in flight: run one after another, in the order issued, so that all ranks run them in the
/// same order whatever they wait for first. Either by a thread of its own, which starts with the
/// first call, or by whoever waits. Once grown, it allocates nothing. One thread at a time may use
/// it, beside its own.
class CallQueue {
 public:
  /// Runs a call, and sets the mark behind its work where that is a device's.
  using Run = std::function<void(std::span<const Segment>, ReduceOp, kernels::StreamMark& mark)>;

  /// Of calls on a device, which have run when their work is enqueued: `ends`, and that device as
  /// kernels::current_device gives it. Of others null, and -1.
  CallQueue(bool threaded, Run run, std::shared_ptr<CallEnds> ends, int device)
      : threaded_(threaded), run_(std::move(run)), ends_(std::move(ends)), device_(device) {}
  /// Runs what is still to be run; errors that nobody waited for are gone.
  ~CallQueue() { close(); }
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// Adds a call; the segments are copied, what they view is not. Returns its number, which one
  /// wait must follow.
  std::uint64_t submit(std::span<const Segment> segments, ReduceOp op);
  /// Returns when the call has run, or throws what it threw. Once for each number. Returns what
  /// CallEnds::wait takes for the work of that call.
  std::uint64_t wait(std::uint64_t number);
  /// The same for the work: CommError where that failed, or does not end in time.
  void finish(std::uint64_t number);
  /// Returns when the call has run, and makes `stream` wait for its work. Throws as wait does, and
  /// then is the one wait.
  void order(std::uint64_t number, void* stream);
  /// Whether the call has run, and its work is done. Without a thread it first runs the next one.
  bool test(std::uint64_t number);
  /// Whether every call has run.
  bool idle();
  /// Returns when they have.
  void drain();
  /// What the destructor does. No call may follow.
  void close() noexcept;

 private:
  struct Call {
    std::vector<Segment> segments;
    ReduceOp op = ReduceOp::sum;
    std::unique_ptr<kernels::StreamMark> mark;
    std::uint64_t ended = 0;  // calls on the device, this one too
    std::exception_ptr error;
    bool awaited = true;  // its error is still to be asked for
  };
  using Lock = std::unique_lock<std::mutex>;

  void run_next(Lock& lock);
  void run_up_to(std::uint64_t number, Lock& lock);
  void work();

  const bool threaded_;
  const Run run_;
  const std::shared_ptr<CallEnds> ends_;
  const int device_;
  std::mutex mutex_;  // guards all below
  std::condition_variable issued_, done_;
  Fifo<Call> calls_;        // not popped yet
  std::uint64_t next_ = 0;  // number of the first call that has not run
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace winnow::comm
