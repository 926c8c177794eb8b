// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>

namespace winnow::kernels {

/// How many forks lie between the process that loaded this library and this one: a load is cheaper
/// than a system call in each wait.
inline std::atomic<unsigned> forks{0};
inline const int kWatchesForks =
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

/// The process in which an object was made. A child of a fork holds a copy of the object without
/// the threads, connections and devices behind it: it must neither use nor end them.
class OwnProcess {
 public:
  bool left() const { return forks.load(std::memory_order_relaxed) != made_in_; }

 private:
  unsigned made_in_ = forks.load(std::memory_order_relaxed);
};

}  // namespace winnow::kernels
