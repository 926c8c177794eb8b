// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback_select.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/elementwise.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/feedback_select.hpp"

namespace winnow::kernels::cuda {

std::size_t feedback_select_scratch(const Exec&, std::size_t count, std::size_t k, std::size_t) {
  expect_selectable(count);
  return SelectScratch(count, select_capacity(count, k, {})).bytes;
}

// If the carried bound was good it reads gradient and residual once and writes the residual
// once, by 16 bytes where they are aligned to them; else it reads the residual up to 4 times more.
void feedback_select(const Exec& exec, const FeedbackSelectJob& job) {
  precondition(exec, job.spans.gradient, job.spans.residual, job.spans.precondition);
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const auto scratch = workspace.take<std::byte>(
      feedback_select_scratch(exec, job.spans.gradient.size(), job.index.size(), 0));
  const SelectTask task = make_select_task(job, scratch.data());
  clear(exec, scratch.data(), SelectScratch(task.count, task.capacity).zeroed);
  for_each_select_kernel(
      task, blocks_for(select_tiles(task.count)),
      [&](const auto& kernel, unsigned blocks) { launch(exec, blocks, kernel); });
}

std::size_t feedback_threshold_scratch(const Exec&, std::size_t count, std::size_t) {
  expect_selectable(count);
  return SelectScratch(count, 0).bytes;
}

void feedback_threshold(const Exec& exec, const FeedbackThresholdJob& job) {
  precondition(exec, job.spans.gradient, job.spans.residual, job.spans.precondition);
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const auto scratch =
      workspace.take<std::byte>(feedback_threshold_scratch(exec, job.spans.gradient.size(), 0));
  const SelectTask task = make_threshold_task(job, scratch.data());
  clear(exec, scratch.data(), SelectScratch(task.count, 0).zeroed);
  for_each_threshold_kernel(
      task, blocks_for(select_tiles(task.count)),
      [&](const auto& kernel, unsigned blocks) { launch(exec, blocks, kernel); });
}

}  // namespace winnow::kernels::cuda
