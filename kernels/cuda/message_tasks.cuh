// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// What a kernel does for several messages, as many blocks for each: block b is of message
/// b % count, and a grid has a multiple of count blocks.
template <class Task>
struct MessageTasks {
  /// As many as arguments of a kernel have room for on every device.
  static constexpr unsigned kMost = 32;
  static_assert(kMost * sizeof(Task) < 4000);

  Task tasks[kMost];
  unsigned count;

  WINNOW_DEVICE const Task& of_block() const { return tasks[simt::block() % count]; }
  /// This thread's number among those of its message, and how many these are.
  WINNOW_DEVICE std::uint64_t thread() const {
    return std::uint64_t{simt::block() / count} * simt::kThreads + simt::thread();
  }
  WINNOW_DEVICE std::uint64_t threads() const {
    return std::uint64_t{simt::blocks() / count} * simt::kThreads;
  }
};

}  // namespace winnow::kernels::cuda
