// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/feedback_select.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::kernels::cuda {

namespace {

using Jobs = std::span<const FeedbackSelectJob>;

/// So many jobs go together at most, which bounds the scratch that they hold.
constexpr std::size_t kTogether = 1024;

/// Scratch of jobs that go together: the zeroed parts of all, then the other parts.
struct JobsScratch {
  std::size_t zeroed = 0, rest = 0;

  explicit JobsScratch(Jobs jobs) {
    for (const FeedbackSelectJob& job : jobs) {
      const SelectScratch layout = select_scratch(job);
      zeroed += layout.zeroed;
      rest += layout.bytes - layout.zeroed;
    }
  }
};

/// Writes the tasks of the jobs and returns how many tiles they have.
std::uint32_t make_tasks(Jobs jobs, SelectMemory memory, std::span<SelectTask> tasks) {
  std::uint32_t tiles = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    tasks[i] = make_select_task(jobs[i], memory);
    tasks[i].first_tile = tiles;
    tiles += pass_tiles(tasks[i].count);
    const SelectScratch layout = select_scratch(jobs[i]);
    memory.zeroed += layout.zeroed;
    memory.rest += layout.bytes - layout.zeroed;
  }
  return tiles;
}

template <class Tasks>
void launch_selects(const Exec& exec, const Tasks& tasks, const SelectShape& shape,
                    std::uint32_t tiles) {
  for_each_select_kernel(tasks, shape,
                         [&](const auto& kernel) { launch(exec, blocks_for(tiles), kernel); });
}

void select_together(const Exec& exec, Jobs jobs) {
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const JobsScratch sizes(jobs);
  const auto scratch = workspace.take<std::byte>(sizes.zeroed + sizes.rest);
  const SelectMemory memory{scratch.data(), scratch.data() + sizes.zeroed};
  if (jobs.size() == 1) {
    const OneSelect one{make_select_task(jobs.front(), memory)};
    clear(exec, memory.zeroed, sizes.zeroed);
    launch_selects(exec, one, SelectShape::of(one.task), pass_tiles(one.task.count));
    return;
  }
  WINNOW_EXPECTS(exec.workspace != nullptr, "jobs on their way to a device need Exec::workspace");
  const auto there = workspace.take<SelectTask>(jobs.size());
  const Workspace::Scope lists(*exec.workspace);
  const auto tasks = exec.workspace->take<SelectTask>(jobs.size());
  const std::uint32_t tiles = make_tasks(jobs, memory, tasks);
  SelectShape shape = {};
  for (const SelectTask& task : tasks) shape = shape | SelectShape::of(task);
  clear(exec, memory.zeroed, sizes.zeroed);
  kernels::store(exec, std::as_writable_bytes(there), std::as_bytes(tasks));
  launch_selects(exec,
                 ManySelects{there.data(), static_cast<std::uint32_t>(jobs.size()), tiles,
                             &tasks.front().control->stream_ticket},
                 shape, tiles);
}

}  // namespace

std::size_t feedback_select_scratch(const Exec&, Jobs jobs) {
  constexpr std::size_t kLine = 256;  // what is taken is rounded up to one
  std::size_t most = 0;
  for (std::size_t at = 0; at < jobs.size(); at += kTogether) {
    const Jobs together = jobs.subspan(at, std::min(kTogether, jobs.size() - at));
    const JobsScratch sizes(together);
    const std::size_t table = together.size() == 1 ? 0 : together.size() * sizeof(SelectTask);
    most = std::max(most, sizes.zeroed + sizes.rest + table + 2 * kLine);
  }
  return most;
}

// If the carried bound was good it reads gradient and residual once and writes the residual
// once, by 16 bytes where they are aligned to them; else it reads the residual up to 4 times more.
void feedback_select(const Exec& exec, Jobs jobs) {
  for (std::size_t at = 0; at < jobs.size(); at += kTogether) {
    select_together(exec, jobs.subspan(at, std::min(kTogether, jobs.size() - at)));
  }
}

std::size_t feedback_threshold_scratch(const Exec&, std::size_t count, std::size_t) {
  expect_selectable(count);
  return SelectScratch(count, 0).bytes;
}

void feedback_threshold(const Exec& exec, const FeedbackThresholdJob& job) {
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const std::size_t count = job.spans.gradient.size();
  const auto scratch = workspace.take<std::byte>(feedback_threshold_scratch(exec, count, 0));
  const SelectScratch layout(count, 0);
  const SelectTask task = make_threshold_task(job, SelectMemory::at(scratch.data(), layout));
  clear(exec, scratch.data(), layout.zeroed);
  const unsigned blocks = blocks_for(pass_tiles(task.count));
  for_each_threshold_kernel(task, [&](const auto& kernel) { launch(exec, blocks, kernel); });
}

}  // namespace winnow::kernels::cuda
