// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/message_tasks.cuh"

namespace winnow::kernels::cuda {

/// Blocks of threads that take a piece of work each.
constexpr std::uint64_t blocks_with(std::uint64_t pieces) {
  return (pieces + simt::kThreads - 1) / simt::kThreads;
}

/// Launches a Kernel for the tasks make(job) of messages, as many at a time as there is room for.
/// blocks_of(task) are as many blocks as a task has work for; one without work needs no launch.
template <class Kernel, class Job, class Make, class BlocksOf>
void launch_messages(const Exec& exec, std::span<const Job> jobs, const Make& make,
                     const BlocksOf& blocks_of) {
  decltype(Kernel::messages) messages = {};
  while (!jobs.empty()) {
    messages.count = static_cast<unsigned>(std::min<std::size_t>(jobs.size(), messages.kMost));
    std::uint64_t most = 0;
    for (unsigned m = 0; m < messages.count; ++m) {
      messages.tasks[m] = make(jobs[m]);
      most = std::max<std::uint64_t>(most, blocks_of(messages.tasks[m]));
    }
    if (most > 0) {
      const unsigned each = blocks_for(most * messages.count) / messages.count;
      launch<Kernel>(exec, std::max(each, 1U) * messages.count, {messages});
    }
    jobs = jobs.subspan(messages.count);
  }
}

}  // namespace winnow::kernels::cuda
