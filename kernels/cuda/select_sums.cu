// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/select_sums.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::kernels::cuda {

namespace {

/// Takes the scratch of a job, with zeros where its kernels want them.
template <class Job>
std::byte* take_scratch(const Exec& exec, const Job& job) {
  expect_selectable(job.owned.count);
  const SumsScratch layout(job.owned, job.terms.host.size());
  std::byte* const scratch = scratch_of(exec).take<std::byte>(layout.bytes).data();
  clear(exec, scratch, layout.select.zeroed);
  return scratch;
}

}  // namespace

std::size_t select_sums_scratch(const Exec&, const OwnedSums& owned, std::size_t,
                                std::uint32_t term_count) {
  expect_selectable(owned.count);
  return SumsScratch(owned, term_count).bytes;
}

void select_sums(const Exec& exec, const SelectSumsJob& job) {
  const Workspace::Scope scope(scratch_of(exec));
  const DeviceTerm* const terms = terms_there(exec, job.terms);
  const SumsTask task = make_sums_task(job, terms, take_scratch(exec, job));
  for_each_sums_kernel(task, [&](const auto& kernel, std::uint64_t blocks) {
    launch(exec, blocks_for(blocks), kernel);
  });
}

void keep_sums(const Exec& exec, const KeepSumsJob& job) {
  const Workspace::Scope scope(scratch_of(exec));
  const DeviceTerm* const terms = terms_there(exec, job.terms);
  const SumsTask task = make_keep_task(job, terms, take_scratch(exec, job));
  for_each_keep_kernel(task, [&](const auto& kernel, std::uint64_t blocks) {
    launch(exec, blocks_for(blocks), kernel);
  });
}

}  // namespace winnow::kernels::cuda
