// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "comm/transport/failure.hpp"
#include "comm/transport/failure_latch.hpp"

namespace winnow::comm {

/// Lets any thread end a transport that one thread uses: the next call fails.
class AbortRequest {
 public:
  bool is_made() const noexcept { return made_.load(std::memory_order_acquire); }
  /// The first one counts.
  void make(Failure why) noexcept {
    const std::lock_guard lock(mutex_);
    if (!made_.load(std::memory_order_relaxed)) why_ = std::move(why);
    made_.store(true, std::memory_order_release);
  }
  /// Keeps why, if it is made.
  void pass_on(FailureLatch& failure) {
    if (!is_made()) return;
    const std::lock_guard lock(mutex_);
    failure.keep(why_);
  }

 private:
  std::atomic<bool> made_ = false;
  std::mutex mutex_;
  Failure why_;  // guarded by mutex_
};

}  // namespace winnow::comm
