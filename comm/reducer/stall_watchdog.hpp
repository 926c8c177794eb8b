// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/reducer/completion_tracker.hpp"

namespace winnow::comm {

/// A thread that gives up on stream-ordered calls if some are under way and none ends for too long:
/// otherwise only the device, which knows no deadline, would wait for a dead peer. Until then it
/// asks the device nothing, so captures can go on beside it.
class StallWatchdog {
 public:
  /// Calls `fail` once at most, on the watchdog's thread with `device` current, whatever other
  /// threads do.
  StallWatchdog(std::shared_ptr<const CompletionTracker> completions, int device,
                std::chrono::duration<double> patience, std::function<void()> fail);
  ~StallWatchdog();
  StallWatchdog(const StallWatchdog&) = delete;
  StallWatchdog& operator=(const StallWatchdog&) = delete;

 private:
  void watch();

  const std::shared_ptr<const CompletionTracker> completions_;
  const int device_;
  const std::chrono::duration<double> patience_;
  const std::function<void()> fail_;
  std::mutex mutex_;  // guards ending_
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace winnow::comm
