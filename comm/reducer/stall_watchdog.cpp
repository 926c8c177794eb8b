// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/reducer/stall_watchdog.hpp"

#include <algorithm>
#include <utility>

#include "kernels/exec/device_scope.hpp"

namespace winnow::comm {

StallWatchdog::StallWatchdog(std::shared_ptr<const CompletionTracker> completions, int device,
                             std::chrono::duration<double> patience, std::function<void()> fail)
    : completions_(std::move(completions)),
      device_(device),
      patience_(patience),
      fail_(std::move(fail)),
      thread_([this] { watch(); }) {}

StallWatchdog::~StallWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void StallWatchdog::watch() {
  kernels::stay_on(device_);
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kLongest{1.0};
  const auto turn = std::min(patience_ / 8, kLongest);
  std::uint64_t done = 0;
  Clock::time_point since = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, turn, [this] { return ending_; })) {
    const std::uint64_t now = completions_->done();
    if (now != done || now == completions_->ended()) {
      done = now;
      since = Clock::now();
    } else if (Clock::now() - since > patience_) {
      fail_();
      return;
    }
  }
}

}  // namespace winnow::comm
