// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// The work of a kernel for several messages, as many blocks for each: block b works on message b %
/// count, and a grid has a multiple of count blocks. Every device has room for 4 KB of arguments.
template <class Task, unsigned kRoom = 32>
struct MessageTasks {
  static constexpr unsigned kMost = kRoom;
  static_assert(kMost * sizeof(Task) < 4000);

  Task tasks[kMost];
  unsigned count;

  WINNOW_DEVICE const Task& of_block() const {
    return tasks[kMost == 1 ? 0 : simt::block() % count];
  }
  /// Whether this block is the first one of its message.
  WINNOW_DEVICE bool is_first_block() const { return simt::block() < count; }
  /// This block's number among those of its message.
  WINNOW_DEVICE unsigned block() const {
    return kMost == 1 ? simt::block() : simt::block() / count;
  }
  /// This thread's number among those of its message, and how many these are.
  WINNOW_DEVICE std::uint64_t thread() const {
    return std::uint64_t{block()} * simt::kThreads + simt::thread();
  }
  WINNOW_DEVICE std::uint64_t threads() const {
    return std::uint64_t{simt::blocks() / count} * simt::kThreads;
  }
};

}  // namespace winnow::kernels::cuda
