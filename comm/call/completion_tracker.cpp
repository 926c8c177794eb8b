// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/completion_tracker.hpp"

#include <sched.h>

#include <atomic>
#include <winnow/error.hpp>

namespace winnow::comm {

namespace {

/// Reads a word that the device writes meanwhile.
template <class T>
T look(T& word) {
  return std::atomic_ref<T>(word).load(std::memory_order_acquire);
}

}  // namespace

CompletionTracker::CompletionTracker(const Exec& where, double patience)
    : exec_(where),
      patience_(patience),
      status_(where, 1),
      report_({}, 1, &kernels::pinned_memory()) {}

kernels::CallStatus& CompletionTracker::status() {
  return status_.span().front();
}

void CompletionTracker::make_room(std::size_t buckets) {
  while (counts_.size() * kBlock < buckets) {
    counts_.emplace_back(Exec{}, kBlock, &kernels::pinned_memory());
  }
  if (polled_.size() >= buckets) return;
  polled_.resize(buckets);
  last_.resize(buckets);
}

void CompletionTracker::end(std::size_t bucket, bool clipped) {
  const bool captured = kernels::is_captured(exec_);
  const std::uint64_t ended = ended_;
  const std::uint64_t number = captured && ended > 0 ? ended - 1 : ended;
  kernels::end_call(exec_, {.status = &status(),
                            .number = number,
                            .report = &report(),
                            .counts = &counts_of(bucket),
                            .counts_clipped = !clipped});
  if (captured) {
    captured_ = true;
  } else {
    ++ended_;
  }
  last_[bucket] = ended_;
}

void CompletionTracker::set_next(std::uint64_t number) {
  kernels::store(exec_, std::as_writable_bytes(std::span(&status().call, 1)),
                 std::as_bytes(std::span(&number, 1)));
  report().next = number;
}

std::uint64_t CompletionTracker::next() const {
  return look(report().next);
}

std::uint64_t CompletionTracker::done() const {
  return look(report().done);
}

bool CompletionTracker::test(std::uint64_t calls) const {
  if (closed_) return true;
  const bool ended = done() >= calls;
  if ((ended && !captured_) || kernels::is_captured(exec_)) return ended;
  if (!kernels::is_idle(exec_)) return false;
  if (done() < calls) throw CudaError("the device has ended its work, but not its calls");
  return true;
}

void CompletionTracker::wait(std::uint64_t calls) const {
  wait(calls, [] {
    ::sched_yield();
    return false;
  });
}

void CompletionTracker::wait(std::uint64_t calls, const std::function<bool()>& stop) const {
  std::uint64_t before = done();
  Deadline deadline = Deadline::after(patience_);
  while (!test(calls)) {
    if (const std::uint64_t now = done(); now != before) {
      before = now;
      deadline = Deadline::after(patience_);
    }
    if (deadline.passed()) fail_at_deadline("while it waited for the device");
    if (stop()) return;
  }
}

void CompletionTracker::fail(const Failure& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = why;
}

std::optional<Failure> CompletionTracker::failure() const {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return failure_;
  }
  if (look(report().unsound_call) == 0) return {};
  return Failure{"message from rank " + std::to_string(look(report().unsound) - 1) +
                 ": the device found it damaged"};
}

kernels::CallCounts CompletionTracker::counts(std::size_t bucket) {
  kernels::CallCounts& words = counts_of(bucket);
  const kernels::CallCounts now = {.refused = look(words.refused), .clipped = look(words.clipped)};
  const kernels::CallCounts before = std::exchange(polled_[bucket], now);
  return {.refused = now.refused - before.refused, .clipped = now.clipped - before.clipped};
}

}  // namespace winnow::comm
