// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launch_tasks.cuh"
#include "kernels/cuda/select_sums.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::kernels::cuda {

namespace {

template <class Job>
SumsScratch layout_of(const Job& job) {
  expect_selectable(job.owned.count);
  return {job.owned, job.terms.host.size()};
}

/// Terms that are not placed are placed in scratch, for each job.
struct SumsKind {
  using Job = SelectSumsJob;
  using Task = SumsTask;
  const Exec& exec;

  static SumsScratch layout(const Job& job) { return layout_of(job); }
  Task make(const Job& job, const SelectMemory& memory) const {
    return make_sums_task(job, device_terms(exec, job.terms), memory);
  }
};

using SumsJobs = std::span<const SelectSumsJob>;

}  // namespace

std::size_t select_sums_scratch(const Exec& exec, SumsJobs jobs) {
  return tasks_scratch(SumsKind{exec}, jobs);
}

void select_sums(const Exec& exec, SumsJobs jobs) {
  for_each_together(jobs, [&](SumsJobs together) {
    launch_together(exec, SumsKind{exec}, together, [&](const auto& tasks, std::uint32_t tiles) {
      for_each_sums_kernel(tasks, tiles, [&](const auto& kernel, std::uint64_t blocks) {
        launch(exec, blocks_for(blocks), kernel);
      });
    });
  });
}

void keep_sums(const Exec& exec, const KeepSumsJob& job) {
  const Workspace::Scope scope(scratch_of(exec));
  const DeviceTerm* const terms = device_terms(exec, job.terms);
  const SumsScratch layout = layout_of(job);
  std::byte* const scratch = scratch_of(exec).take<std::byte>(layout.bytes).data();
  clear(exec, scratch, layout.zeroed);
  const SumsTask task = make_keep_task(job, terms, SelectMemory::in(scratch, layout));
  for_each_keep_kernel(task, [&](const auto& kernel, std::uint64_t blocks) {
    launch(exec, blocks_for(blocks), kernel);
  });
}

}  // namespace winnow::kernels::cuda
