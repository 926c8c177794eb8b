// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/cuda/split.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/split.hpp"

namespace winnow::kernels::cuda {

std::size_t split_scratch(const Exec&, const Partition& partition, std::size_t) {
  return split_scratch_bytes(partition);
}

void split_by_owner(const Exec& exec, const SplitJob& job) {
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const auto scratch = workspace.take<std::byte>(split_scratch_bytes(job.partition));
  clear(exec, scratch.data(), scratch.size());
  const SplitTask task = make_split_task(job, scratch.data());
  for_each_split_kernel(task, [&](const auto& kernel, std::uint64_t threads) {
    launch(exec, blocks_of(threads), kernel);
  });
}

void positions_of(const Exec& exec, const Partition& partition, std::uint32_t owner,
                  std::span<const std::uint32_t> local, std::span<std::uint32_t> index) {
  launch_piece(exec, PositionsOf{partition, owner, local.data(), index.data(), index.size()});
}

}  // namespace winnow::kernels::cuda
