// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "kernels/cuda/add_to.cuh"
#include "kernels/cuda/add_to.hpp"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

namespace {

void clear(const Exec& exec, std::uint32_t* word) {
  WINNOW_EXPECTS(word != nullptr, "a sum needs a word for not_finite");
  WINNOW_CUDA_TRY(cudaMemsetAsync(word, 0, sizeof *word, static_cast<cudaStream_t>(exec.stream)));
}

void add_list(const Exec& exec, const AddTask& task) {
  const std::uint64_t entries = task.list.index.size();
  if (entries == 0) return;
  launch<AddList>(exec, blocks_for((entries + simt::kThreads - 1) / simt::kThreads), task);
}

}  // namespace

void add_to(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list,
            float factor, std::uint32_t* not_finite) {
  clear(exec, not_finite);
  add_list(exec, {sum.data(), base, list, factor, not_finite});
}

void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list) {
  add_list(exec, {sum.data(), base, list, 1, nullptr});
}

void ordered_sum(const Exec& exec, const DeviceSumJob& job) {
  clear(exec, job.not_finite);
  if (job.sum.empty()) return;
  const std::uint64_t tiles = (job.sum.size() + kSumTile - 1) / kSumTile;
  launch<OrderedSum>(exec, static_cast<unsigned>(tiles),
                     {job.lists, job.list_count, job.begin, job.sum.data(), job.sum.size(),
                      job.factor, job.not_finite});
}

}  // namespace winnow::kernels::cuda
