// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "comm/call/completion_tracker.hpp"

namespace winnow::comm {

/// A function to run once a call is done. See Work::on_complete.
struct Callback {
  std::uint64_t number;  // of its call
  std::function<void(std::exception_ptr)> run;
  // Once the call has run.
  std::uint64_t ended = 0;
  std::exception_ptr error = nullptr;
};

/// The callbacks of calls in flight, which run in the order of their calls. The caller holds the
/// lock that guards the calls; callbacks run without it.
class Callbacks {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// `completions`: as CallQueue has it.
  explicit Callbacks(CompletionTracker* completions) : completions_(completions) {}

  bool empty() const { return waiting_.empty(); }
  bool all_ran() const { return waiting_.empty() && !running_; }
  /// Whether this thread runs a callback of these.
  bool is_inside() const { return inside == this; }
  /// Adds a callback, or runs it if its call is done (`has_run`) and no other is before it.
  void add(Callback callback, bool has_run, Lock& lock);
  /// The call has run.
  void finish_call(std::uint64_t number, std::uint64_t ended, const std::exception_ptr& error);
  /// Runs callbacks of calls before `next`, as far as the device is done. Returns whether any ran.
  bool run_due(std::uint64_t next, Lock& lock);
  /// Waits for the device, where the first callback's call has run, until that is done or `stop`
  /// returns true, which is called without the lock. `next`: as in run_due.
  void await_first(std::uint64_t next, const std::function<bool()>& stop, Lock& lock);

 private:
  bool is_due(Callback& callback) const;
  void run(Callback callback) const noexcept;

  static constinit thread_local const Callbacks* inside;  // those whose callback this thread runs

  CompletionTracker* completions_;
  std::vector<Callback> waiting_;  // by number
  bool running_ = false;           // one of them, which is in waiting_ no more
};

}  // namespace winnow::comm
