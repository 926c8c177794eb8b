// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback_select.cuh"
#include "kernels/cuda/feedback_select.hpp"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

std::size_t feedback_select_scratch(std::size_t count, std::size_t k) {
  expect_selectable(count);
  return SelectScratch(count, select_capacity(count, k, {})).bytes;
}

void feedback_select(const Exec& exec, const DeviceSelectJob& job) {
  const SelectTask task = make_select_task(job);
  clear(exec, job.scratch.data(), SelectScratch(task.count, task.capacity).zeroed);
  for_each_select_kernel(
      task, blocks_for(select_tiles(task.count)),
      [&](auto kernel, unsigned blocks) { launch<decltype(kernel)>(exec, blocks, task); });
}

std::size_t feedback_threshold_scratch(std::size_t count) {
  expect_selectable(count);
  return SelectScratch(count, 0).bytes;
}

void feedback_threshold(const Exec& exec, const DeviceThresholdJob& job) {
  const SelectTask task = make_threshold_task(job);
  clear(exec, job.scratch.data(), SelectScratch(task.count, 0).zeroed);
  for_each_threshold_kernel(
      task, blocks_for(select_tiles(task.count)),
      [&](auto kernel, unsigned blocks) { launch<decltype(kernel)>(exec, blocks, task); });
}

}  // namespace winnow::kernels::cuda
