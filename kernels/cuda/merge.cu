// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/merge.cuh"
#include "kernels/cuda/merge.hpp"

namespace winnow::kernels::cuda {

std::size_t merge_scratch(std::size_t entries) {
  return merge_scratch_bytes(entries);
}

void merge(const Exec& exec, const DeviceMergeJob& job) {
  const MergeTask task = make_merge_task(job);
  const std::size_t entries = job.first.index.size() + job.second.index.size();
  clear(exec, task.size);
  if (entries == 0) return;
  clear(exec, job.scratch.data(), merge_scratch_bytes(entries));
  launch<Merge>(exec, blocks_for(merge_tiles(entries)), task);
}

}  // namespace winnow::kernels::cuda
