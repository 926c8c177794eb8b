// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/select_sums.cuh"
#include "kernels/cuda/select_sums.hpp"

namespace winnow::kernels::cuda {

std::size_t select_sums_scratch(const OwnedSums& owned, std::uint32_t term_count) {
  expect_selectable(owned.count);
  return SumsScratch(owned, term_count).bytes;
}

void select_sums(const Exec& exec, const DeviceSelectSumsJob& job) {
  const SumsTask task = make_sums_task(job);
  clear(exec, job.scratch.data(), SumsScratch(job.owned, job.term_count).select.zeroed);
  for_each_sums_kernel(task, [&](auto kernel, const auto& part, std::uint64_t blocks) {
    launch<decltype(kernel)>(exec, blocks_for(blocks), part);
  });
}

void keep_sums(const Exec& exec, const DeviceKeepSumsJob& job) {
  const SumsTask task = make_keep_task(job);
  clear(exec, job.scratch.data(), SumsScratch(job.owned, job.term_count).select.zeroed);
  for_each_keep_kernel(task, [&](auto kernel, std::uint64_t blocks) {
    launch<decltype(kernel)>(exec, blocks_for(blocks), task);
  });
}

}  // namespace winnow::kernels::cuda
