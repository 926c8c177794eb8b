// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/reducer/call_ends.hpp"

namespace winnow::comm {

/// Looks after calls whose messages are a stream's work, so that nobody waits for a peer that is
/// gone but the device, which knows no deadline: a thread that gives up when calls have been under
/// way, and none has ended, for too long. It asks nothing of the device before, so captures go on
/// beside it.
class Watcher {
 public:
  /// `give_up` is called once at most, on the watcher's thread, with `device` current, beside
  /// whatever others do.
  Watcher(std::shared_ptr<const CallEnds> ends, int device, std::chrono::duration<double> patience,
          std::function<void()> give_up);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void watch();

  const std::shared_ptr<const CallEnds> ends_;
  const int device_;
  const std::chrono::duration<double> patience_;
  const std::function<void()> give_up_;
  std::mutex mutex_;  // guards ending_
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace winnow::comm
