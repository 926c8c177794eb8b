// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <mutex>
#include <utility>

namespace winnow::tests {

/// Memory that ranks send from: after a failure peers may read it until the transport is destroyed,
/// which outlives the ranks' bodies.
template <class T>
class Kept {
 public:
  template <class... Args>
  T& make(Args&&... args) {
    const std::lock_guard lock(mutex_);
    return objects_.emplace_back(std::forward<Args>(args)...);
  }

 private:
  std::mutex mutex_;
  std::deque<T> objects_;
};

}  // namespace winnow::tests
