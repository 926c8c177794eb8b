// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordered_sum.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::kernels::cuda {

namespace {

void launch_sum(const Exec& exec, const OrderedSumJob& job) {
  SumTask task = make_sum_task(job);
  const std::uint64_t tiles = sum_tiles(task);
  if (tiles == 0) return;
  // Longer runs where they leave all multiprocessors full.
  const unsigned blocks = sum_blocks(task, std::max<std::uint64_t>(tiles / blocks_for(tiles), 1));
  launch<OrderedSum>(exec, blocks, {task});
}

}  // namespace

void ordered_sum(const Exec& exec, const OrderedSumJob& job) {
  if (job.terms.placed != nullptr || job.terms.host.size() <= kTermsInALaunch) {
    launch_sum(exec, job);
    return;
  }
  const Workspace::Scope scope(scratch_of(exec));
  OrderedSumJob placed = job;
  placed.terms.placed = device_terms(exec, job.terms);
  launch_sum(exec, placed);
}

}  // namespace winnow::kernels::cuda
