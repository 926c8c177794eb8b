// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <winnow/allreducer.hpp>

#include "comm/call/call_list.hpp"
#include "comm/call/callbacks.hpp"
#include "comm/call/completion_tracker.hpp"
#include "kernels/exec/own_process.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

/// Calls in flight. They run one after another in the order issued, so all ranks run them in the
/// same order, whichever is waited for first. The queue's own thread runs them (it starts with the
/// first call), or the thread that waits. Allocates nothing once grown. With a thread of its own,
/// any threads may use it at once; otherwise one at a time. In a child of a fork everything but
/// close, detach and drop throws UsageError. So does, from within a callback, what adds a call or
/// waits for one that has not run.
class CallQueue {
 public:
  /// Runs a call and sets the mark behind its work if that is on a device.
  using Run = std::function<void(std::span<const Segment>, ReduceOp, kernels::StreamMark& mark)>;
  using Completion = std::function<void(std::exception_ptr)>;
  static constexpr std::size_t kInFlight = CallList::kInFlight;

  /// For calls on a device, which have run once their work is enqueued: `completions`, and the
  /// device as given by kernels::current_device. Otherwise null and -1.
  CallQueue(bool threaded, Run run, std::shared_ptr<CompletionTracker> completions, int device);
  /// Runs the remaining calls; drops errors that nobody waited for.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// Makes room for kInFlight calls of that many segments each. May be called from within a call.
  void reserve(std::size_t segments);
  /// How often more calls or segments than reserved took memory.
  std::uint64_t allocations() {
    const Lock held = lock();
    return calls_.allocations();
  }
  /// Adds a call. Copies the segments, but not their elements. Returns its number, for exactly one
  /// wait; nothing if there is no memory or no thread for it, and then nothing has changed.
  std::optional<std::uint64_t> submit(std::span<const Segment> segments, ReduceOp op);
  /// Returns when the call has run, or throws what it threw. Once for each number. Returns the
  /// number that CompletionTracker::wait takes for the call's work.
  std::uint64_t wait(std::uint64_t number);
  /// Waits for the work, too: CommError if it failed or does not end in time.
  void finish(std::uint64_t number);
  /// Returns when the call has run, and makes `stream` wait for its work. If this throws (as wait
  /// does), it counts as the wait for this number.
  void order(std::uint64_t number, void* stream);
  /// Whether the call has run and its work is done. Without a thread it first runs the next call.
  bool test(std::uint64_t number);
  /// See Work::on_complete. Before the wait for this number.
  void on_complete(std::uint64_t number, Completion callback);
  /// Stands for the wait for this number, and does not block.
  void detach(std::uint64_t number) noexcept;
  /// Waits for this number and drops its error; from within a callback, detaches.
  void drop(std::uint64_t number) noexcept;
  /// Whether every call has run.
  bool idle();
  /// Returns when every call and every callback has run.
  void drain();
  /// Throws the first error of calls that were detached, once.
  void rethrow_detached();
  /// Does the destructor's work. No call may follow.
  void close() noexcept;
  /// Whether this is a child of a fork, which must not destroy the queue.
  bool forked() const { return process_.left(); }
  /// Whether this thread has added calls to another queue that has no thread either, and they have
  /// not run: nor will they before the call that this thread is in.
  bool blocks_others() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  Lock lock();
  void expect_outside_callbacks() const;
  bool has_calls_of(std::thread::id caller);
  void run_next(Lock& lock);
  void run_up_to(std::uint64_t number, Lock& lock);
  void run_callbacks(Lock& lock);
  void await_callback(Lock& lock);
  void finish_callbacks(Lock& lock);
  void work();

  const bool threaded_;
  const Run run_;
  const std::shared_ptr<CompletionTracker> completions_;
  const int device_;
  const kernels::OwnProcess process_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable issued_, done_;
  CallList calls_;
  Callbacks callbacks_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace winnow::comm

/// The queue by the name that the public header knows.
class winnow::Work::Queue final : public winnow::comm::CallQueue {
  using CallQueue::CallQueue;
};
