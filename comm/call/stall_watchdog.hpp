// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "comm/call/completion_tracker.hpp"

namespace winnow::comm {

/// A thread that gives up on stream-ordered calls if some are under way and none ends for too long:
/// otherwise only the device, which knows no deadline, would wait for a dead peer. Until then it
/// asks the device nothing, so captures can go on beside it. Calls `fail` once at most, with
/// `device` current, whatever other threads do.
std::jthread stall_watchdog(std::shared_ptr<const CompletionTracker> completions, int device,
                            std::chrono::duration<double> patience, std::function<void()> fail);

}  // namespace winnow::comm
