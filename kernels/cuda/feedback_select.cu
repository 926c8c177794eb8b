// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback_select.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launch_tasks.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/feedback_select.hpp"

namespace winnow::kernels::cuda {

namespace {

struct SelectKind {
  using Job = FeedbackSelectJob;
  using Task = SelectTask;
  static SelectScratch layout(const Job& job) { return select_scratch(job); }
  static Task make(const Job& job, const SelectMemory& memory) {
    return make_select_task(job, memory);
  }
};

using SelectJobs = std::span<const FeedbackSelectJob>;

/// Whether the caches hold the next tiles of all blocks that run, and as much beside them: else
/// what is prefetched would be lost before it is read.
bool caches_hold_tiles() {
  constexpr std::uint64_t kTileBytes = 2 * kSelectTile * sizeof(float), kBlocks = 4;
  const int multiprocessors = attribute_of_device(cudaDevAttrMultiProcessorCount);
  const auto tiles = kBlocks * static_cast<unsigned>(multiprocessors);
  const auto cache = static_cast<unsigned>(attribute_of_device(cudaDevAttrL2CacheSize));
  return cache >= 2 * tiles * kTileBytes;
}

SelectShape shape_of(SelectJobs jobs) {
  SelectShape shape = {};
  shape.prefetches = caches_hold_tiles();
  for (const FeedbackSelectJob& job : jobs) {
    shape.has_own |= job.spans.own.partition != nullptr;
    shape.makes_updates |= job.spans.precondition.kind != Precondition::Kind::none;
    shape.zero_gradient |= job.gradient_after == GradientAfter::zero;
    shape.one_side |= job.side != Side::both;
  }
  return shape;
}

}  // namespace

std::size_t feedback_select_scratch(const Exec&, SelectJobs jobs) {
  return tasks_scratch(SelectKind(), jobs);
}

// If the carried bound was good it reads gradient and residual once and writes the residual
// once, by 16 bytes, or 8 of a gradient of 16 bits, where they are aligned to them; else it reads
// the residual up to 4 times more.
void feedback_select(const Exec& exec, SelectJobs jobs) {
  for_each_together(jobs, [&](SelectJobs together) {
    const SelectShape shape = shape_of(together);
    launch_together(exec, SelectKind(), together, [&](const auto& tasks, std::uint32_t tiles) {
      for_each_select_kernel(tasks, shape,
                             [&](const auto& kernel) { launch(exec, blocks_for(tiles), kernel); });
    });
  });
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
  const SelectTask task = make_threshold_task(job, SelectMemory::in(scratch.data(), layout));
  clear(exec, scratch.data(), layout.zeroed);
  const unsigned blocks = blocks_for(pass_tiles(task.count));
  SelectShape shape = SelectShape::of(task);
  shape.prefetches = caches_hold_tiles();
  for_each_threshold_kernel(task, shape, [&](const auto& kernel) { launch(exec, blocks, kernel); });
}

}  // namespace winnow::kernels::cuda
