// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/stall_watchdog.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "kernels/exec/device_scope.hpp"

namespace winnow::comm {

std::jthread stall_watchdog(std::shared_ptr<const CompletionTracker> completions, int device,
                            std::chrono::duration<double> patience, std::function<void()> fail) {
  return std::jthread([completions = std::move(completions), device, patience,
                       fail = std::move(fail)](const std::stop_token& ending) {
    kernels::stay_on(device);
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::duration<double> kLongest{1.0};
    const auto turn = std::min(patience / 8, kLongest);
    std::uint64_t done = 0;
    Clock::time_point since = Clock::now();
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, ending, turn, [&] { return ending.stop_requested(); })) {
      const std::uint64_t now = completions->done();
      if (now != done || now == completions->ended()) {
        done = now;
        since = Clock::now();
      } else if (Clock::now() - since > patience) {
        fail();
        return;
      }
    }
  });
}

}  // namespace winnow::comm
