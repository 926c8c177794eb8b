// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/merge.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/merge.hpp"

namespace winnow::kernels::cuda {

/// Takes scratch for all that there is room for: as much however long the lists are.
void merge(const Exec& exec, const MergeJob& job) {
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  std::byte* const scratch =
      workspace.take<std::byte>(merge_scratch_bytes(job.index.size())).data();
  const MergeTask task = make_merge_task(job, scratch);
  const std::size_t entries = job.first.index.size() + job.second.index.size();
  clear(exec, task.size);
  if (entries == 0) return;
  clear(exec, scratch, merge_scratch_bytes(entries));
  launch<Merge>(exec, blocks_for(merge_tiles(entries)), {task});
}

}  // namespace winnow::kernels::cuda
