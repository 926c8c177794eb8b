// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

namespace winnow::comm {

/// A function with a stack of its own that can stop in the middle and go on later: what ranks are
/// to a simulation. It runs on the thread that resumes it, always the same one unless the body
/// keeps no address of a thread's own variables over suspend(); exceptions that are being handled
/// and the float mode belong to the fiber. AddressSanitizer and ThreadSanitizer are told of every
/// switch.
class Fiber {
 public:
  /// `body` must not throw. Throws CommError where there is no memory for a stack.
  explicit Fiber(std::function<void()> body);
  /// What a fiber that has not ended holds on its stack is not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the body until it suspends or ends. Not from a fiber.
  void resume();
  /// Called by the body: returns when it is resumed.
  void suspend();
  bool ended() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow::comm
