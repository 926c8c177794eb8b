// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "kernels/cuda/add_to.cuh"
#include "kernels/cuda/add_to.hpp"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

namespace {

void expect_word(const std::uint32_t* word) {
  WINNOW_EXPECTS(word != nullptr, "a sum needs a word for not_finite");
}

void add_list(const Exec& exec, const AddTask& task) {
  WINNOW_EXPECTS(task.list.is_list, "add_to takes a list; ordered_sum takes the others");
  const std::uint64_t entries = task.list.count;
  if (entries == 0) return;
  launch<AddList>(exec, blocks_of(entries), task);
}

}  // namespace

void add_to(const Exec& exec, std::span<float> sum, std::uint32_t base, const DeviceTerm& list,
            float factor, std::uint32_t* not_finite) {
  expect_word(not_finite);
  add_list(exec, {sum.data(), base, list, factor, not_finite});
}

void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list) {
  const Term term{.index = list.index, .value = list.value};
  add_list(exec, {sum.data(), base, device_term(term), 1, nullptr});
}

void ordered_sum(const Exec& exec, const DeviceSumJob& job) {
  if (job.sum.empty()) return;
  const SumTask task = make_sum_task(job);
  launch<OrderedSum>(exec, sum_tiles(task), task);
}

}  // namespace winnow::kernels::cuda
