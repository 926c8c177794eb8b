// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/add_to.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct AddTask {
  float* sum;
  std::uint32_t base;
  SparseView list;
  float factor;
  std::uint32_t* not_finite;  ///< may be null
};

/// Adds one list. No position is named twice, so each entry is a thread's own.
struct AddList {
  using Task = AddTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    const std::uint32_t* const index = task.list.index.data();
    const float* const value = task.list.value.data();
    bool finite = true;
    for (std::uint64_t j = simt::grid_thread(); j < task.list.index.size();
         j += simt::grid_threads()) {
      float& sum = task.sum[index[j] - task.base];
      float changed = sum + value[j];
      if (task.factor != 1) changed *= task.factor;
      finite = finite && is_finite(changed);
      sum = changed;
    }
    if (!finite && task.not_finite != nullptr) simt::atomic_or(task.not_finite, 1);
  }
};

struct SumTask {
  const SparseView* lists;
  std::uint32_t list_count;
  std::uint64_t begin;
  float* sum;
  std::uint64_t count;
  float factor;
  std::uint32_t* not_finite;
};

/// Positions that a block of threads sums in shared memory: 4 vectors a thread.
inline constexpr std::uint32_t kSumTile = simt::kThreads * 16;

/// Adds lists in their order. A block owns a tile of positions, finds by binary search where it
/// begins and ends in each list, and adds the lists one after the other; within one, no position is
/// named twice.
struct OrderedSum {
  using Task = SumTask;
  static constexpr std::uint32_t kGroup = 64;  // lists that are searched at a time

  struct Shared {
    float sum[kSumTile];
    std::uint64_t slice[2 * kGroup];  // where a list enters the tile, and where it leaves it
  };

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    const std::uint64_t begin = task.begin + std::uint64_t{simt::block()} * kSumTile;
    const std::uint64_t all = task.begin + task.count;
    const std::uint64_t end = begin + kSumTile < all ? begin + kSumTile : all;
    // The elements that this thread writes in the end: without lists there is no barrier.
    for (std::uint32_t i = simt::thread() * 4; i < kSumTile; i += simt::kThreads * 4) {
      for (unsigned e = 0; e < 4; ++e) shared.sum[i + e] = 0;
    }
    for (std::uint32_t group = 0; group < task.list_count; group += kGroup) {
      const std::uint32_t left = task.list_count - group, lists = left < kGroup ? left : kGroup;
      const std::uint32_t mine = simt::thread();
      if (mine < 2 * lists) {
        shared.slice[mine] = first_from(task.lists[group + mine / 2], mine % 2 == 0 ? begin : end);
      }
      simt::barrier();
      for (std::uint32_t p = 0; p < lists; ++p) {
        add(shared, task.lists[group + p], begin, shared.slice[2 * p], shared.slice[2 * p + 1]);
        simt::barrier();
      }
    }
    write(shared, task, begin, end);
  }

 private:
  /// The first entry of a list whose position is not below `position`.
  WINNOW_DEVICE static std::uint64_t first_from(const SparseView& list, std::uint64_t position) {
    const std::uint32_t* const index = list.index.data();
    std::uint64_t first = 0, end = list.index.size();
    while (first < end) {
      const std::uint64_t middle = first + (end - first) / 2;
      if (index[middle] < position) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    return first;
  }

  WINNOW_DEVICE static void add(Shared& shared, const SparseView& list, std::uint64_t begin,
                                std::uint64_t from, std::uint64_t to) {
    const std::uint32_t* const index = list.index.data();
    const float* const value = list.value.data();
    for (std::uint64_t j = from + simt::thread(); j < to; j += simt::kThreads) {
      shared.sum[index[j] - begin] += value[j];
    }
  }

  WINNOW_DEVICE static void write(const Shared& shared, const Task& task, std::uint64_t begin,
                                  std::uint64_t end) {
    bool finite = true;
    const auto size = static_cast<std::uint32_t>(end - begin);
    for (std::uint32_t i = simt::thread() * 4; i < size; i += simt::kThreads * 4) {
      float four[4];
      for (unsigned e = 0; e < 4; ++e) {
        four[e] = shared.sum[i + e];
        if (task.factor != 1) four[e] *= task.factor;
        finite = finite && is_finite(four[e]);
      }
      store_vector(task.sum + (begin - task.begin) + i, elements_below(size, i), four);
    }
    if (!finite) simt::atomic_or(task.not_finite, 1);
  }
};

}  // namespace winnow::kernels::cuda
