// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

namespace winnow::comm {

/// A function with its own stack that can stop in the middle and resume later; a simulation runs
/// each rank as one. It runs on the thread that resumes it: always the same one, unless the body
/// keeps no address of thread-local variables over suspend(). Exceptions being handled and the
/// floating-point mode belong to the fiber. AddressSanitizer and ThreadSanitizer learn of every
/// switch.
class Fiber {
 public:
  /// `body` must not throw. Throws CommError if there is no memory for a stack.
  explicit Fiber(std::function<void()> body);
  /// Does not destroy what an unfinished fiber holds on its stack.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the body until it suspends or ends. Not callable from a fiber.
  void resume();
  /// Called by the body: returns when it is resumed.
  void suspend();
  bool ended() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow::comm
