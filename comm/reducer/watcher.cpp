// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/reducer/watcher.hpp"

#include <algorithm>
#include <utility>

#include "kernels/exec/device_scope.hpp"

namespace winnow::comm {

Watcher::Watcher(std::shared_ptr<const CallEnds> ends, int device,
                 std::chrono::duration<double> patience, std::function<void()> give_up)
    : ends_(std::move(ends)),
      device_(device),
      patience_(patience),
      give_up_(std::move(give_up)),
      thread_([this] { watch(); }) {}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watcher::watch() {
  kernels::stay_on(device_);
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kLongest{1.0};
  const auto turn = std::min(patience_ / 8, kLongest);
  std::uint64_t done = 0;
  Clock::time_point since = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, turn, [this] { return ending_; })) {
    const std::uint64_t now = ends_->done();
    if (now != done || now == ends_->ended()) {
      done = now;
      since = Clock::now();
    } else if (Clock::now() - since > patience_) {
      give_up_();
      return;
    }
  }
}

}  // namespace winnow::comm
