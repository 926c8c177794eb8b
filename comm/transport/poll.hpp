// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>
#include <winnow/transport.hpp>

namespace winnow::comm {

// How a transport waits for what it has to poll. Each polls `done` at least once, and returns
// whether it was done before the deadline passed.

/// For messages: polls without a pause at first, since most come within microseconds, and then
/// yields the processor after each poll, since ranks may share it.
template <class Done>
bool spin_until(const Done& done, Deadline deadline = Deadline::never()) {
  constexpr unsigned kPollsBeforeYield = 200;
  for (unsigned polls = 0; !done(); ++polls) {
    if (deadline.passed()) return false;
    if (polls >= kPollsBeforeYield) ::sched_yield();
  }
  return true;
}

/// For what takes milliseconds, as a connection does: sleeps after each poll.
template <class Done>
bool sleep_until(const Done& done, Deadline deadline,
                 std::chrono::milliseconds pause = std::chrono::milliseconds(1)) {
  while (!done()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace winnow::comm
