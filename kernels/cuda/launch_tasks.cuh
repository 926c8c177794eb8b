// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/error.hpp>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tasks.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::kernels::cuda {

// Jobs of a Kind become tasks that share kernels. A Kind has
//
//   Job, Task
//   layout(job)         the scratch of its task: `bytes`, the first `zeroed` of them zero
//   make(job, memory)   the task, as if it were alone

/// So many jobs go together at most, which bounds the scratch that they hold.
inline constexpr std::size_t kTasksTogether = 1024;

/// Scratch of jobs that go together: the zeroed parts of all, then the other parts.
struct TasksScratch {
  std::size_t zeroed = 0, rest = 0;

  template <class Kind>
  TasksScratch(const Kind& kind, std::span<const typename Kind::Job> jobs) {
    for (const auto& job : jobs) {
      const auto layout = kind.layout(job);
      zeroed += layout.zeroed;
      rest += layout.bytes - layout.zeroed;
    }
  }
};

/// Calls each(jobs) for those that go together.
template <class Job, class Each>
void for_each_together(std::span<const Job> jobs, const Each& each) {
  for (std::size_t at = 0; at < jobs.size(); at += kTasksTogether) {
    each(jobs.subspan(at, std::min(kTasksTogether, jobs.size() - at)));
  }
}

/// The most scratch that launch_tasks takes.
template <class Kind>
std::size_t tasks_scratch(const Kind& kind, std::span<const typename Kind::Job> jobs) {
  constexpr std::size_t kLine = 256;  // what is taken is rounded up to one
  std::size_t most = 0;
  for_each_together(jobs, [&](auto together) {
    const TasksScratch sizes(kind, together);
    const std::size_t table =
        together.size() == 1 ? 0 : together.size() * sizeof(typename Kind::Task);
    most = std::max(most, sizes.zeroed + sizes.rest + table + 2 * kLine);
  });
  return most;
}

/// Calls launch_all(tasks, tiles) for the tasks of jobs that go together, in scratch.
template <class Kind, class LaunchAll>
void launch_together(const Exec& exec, const Kind& kind, std::span<const typename Kind::Job> jobs,
                     const LaunchAll& launch_all) {
  using Task = typename Kind::Task;
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const TasksScratch sizes(kind, jobs);
  const auto scratch = workspace.take<std::byte>(sizes.zeroed + sizes.rest);
  SelectMemory memory{scratch.data(), scratch.data() + sizes.zeroed};
  if (jobs.size() == 1) {
    const OneTask<Task> one{kind.make(jobs.front(), memory)};
    clear(exec, scratch.data(), sizes.zeroed);
    launch_all(one, pass_tiles(select_of(one.task).count));
    return;
  }
  WINNOW_EXPECTS(exec.workspace != nullptr, "jobs on their way to a device need Exec::workspace");
  const auto placed = workspace.take<Task>(jobs.size());
  const Workspace::Scope lists(*exec.workspace);
  const auto tasks = exec.workspace->take<Task>(jobs.size());
  std::uint32_t tiles = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    tasks[i] = kind.make(jobs[i], memory);
    SelectTask& select = select_of(tasks[i]);
    select.first_tile = tiles;
    tiles += pass_tiles(select.count);
    const auto layout = kind.layout(jobs[i]);
    memory.zeroed += layout.zeroed;
    memory.rest += layout.bytes - layout.zeroed;
  }
  clear(exec, scratch.data(), sizes.zeroed);
  kernels::store(exec, std::as_writable_bytes(placed), std::as_bytes(tasks));
  launch_all(ManyTasks<Task>{placed.data(), static_cast<std::uint32_t>(jobs.size()), tiles,
                             &select_of(tasks.front()).control->stream_ticket},
             tiles);
}

}  // namespace winnow::kernels::cuda
