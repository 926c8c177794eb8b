// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/split.cuh"
#include "kernels/cuda/split.hpp"

namespace winnow::kernels::cuda {

std::size_t split_scratch(const Partition& partition) {
  return split_scratch_bytes(partition);
}

void split_by_owner(const Exec& exec, const DeviceSplitJob& job) {
  const SplitTask task = make_split_task(job);
  clear(exec, job.scratch.data(), split_scratch_bytes(job.partition));
  for_each_split_kernel(task, [&](auto kernel, std::uint64_t threads) {
    launch<decltype(kernel)>(exec, blocks_of(threads), task);
  });
}

void positions_of(const Exec& exec, const Partition& partition, std::uint32_t owner,
                  std::span<const std::uint32_t> local, std::span<std::uint32_t> index) {
  WINNOW_EXPECTS(owner < partition.owners() && local.size() == index.size(),
                 "positions_of takes one of the partition's owners and as many indices as numbers");
  if (index.empty()) return;
  launch<PositionsOf>(exec, blocks_of(index.size()),
                      {partition, owner, local.data(), index.data(), index.size()});
}

}  // namespace winnow::kernels::cuda
