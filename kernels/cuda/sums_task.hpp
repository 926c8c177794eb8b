// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <winnow/error.hpp>

#include "kernels/cuda/select_sums.hpp"
#include "kernels/cuda/select_task.hpp"

namespace winnow::kernels::cuda {

/// What the kernels of select_sums are told. Positions of own elements count from `begin`, a local
/// number.
struct SumsTask {
  SelectTask select;      ///< of the candidates, or else of all sums
  SelectOwn own;          ///< with the list of elements that reached the bound
  const float* residual;  ///< acc, where own
  std::uint64_t begin;
  const SelectResult* fed;
  const DeviceTerm* terms;
  std::uint32_t term_count;
  std::uint32_t* slices;  ///< of each tile, and behind the last: where each list enters it
  std::uint64_t* touched_count;
  std::uint32_t* touched;
  float* sum;
  std::uint32_t touched_room;

  WINNOW_DEVICE float acc(std::uint32_t i) const {
    return residual[own.partition.position(own.self, begin + i) - own.base];
  }
  /// Of the list of own elements, which stands behind the terms.
  WINNOW_DEVICE std::uint32_t listed() const {
    return fed->listed < own.room ? static_cast<std::uint32_t>(fed->listed) : own.room;
  }
};

/// A tile's own elements; their sums lie in shared memory.
inline constexpr std::uint32_t kSumsTile = kSelectTile;

/// Where things lie in the scratch memory, behind what a selection needs.
struct SumsScratch {
  std::uint32_t capacity;  ///< every element that terms name or the list holds is a candidate
  SelectScratch select;
  std::size_t sums, slices, bytes;

  SumsScratch(const OwnedSums& owned, std::uint32_t term_count)
      : capacity(static_cast<std::uint32_t>(
            std::min<std::uint64_t>(owned.count, owned.own.index.size() + owned.most))),
        select(owned.count, capacity),
        sums(select.bytes),
        slices(sums + (owned.count * sizeof(float) + 255) / 256 * 256),
        bytes(slices + (std::size_t{select_tiles(static_cast<std::uint32_t>(owned.count))} + 1) *
                           (std::size_t{term_count} + 1) * sizeof(std::uint32_t)) {}
};

/// What the sums are told, and nothing of a selection yet.
inline SumsTask make_adding_task(const DeviceSelectSumsJob& job) {
  const OwnedSums& owned = job.owned;
  expect_selectable(owned.count);
  WINNOW_EXPECTS(owned.own.partition != nullptr && owned.own.partition->owners() == job.term_count,
                 "there must be a term, maybe empty, for each owner");
  const SelectOwn own = make_select_own(owned.own, nullptr);
  WINNOW_EXPECTS(owned.begin % Partition::kUnit == 0 &&
                     owned.begin + owned.count <= std::numeric_limits<std::uint32_t>::max(),
                 "own elements must start at a local number that is a multiple of 64 and end below "
                 "2^32");
  WINNOW_EXPECTS(job.out.touched.size() == job.out.sum.size() &&
                     job.out.touched.size() >= std::min(owned.most, owned.count) &&
                     job.out.touched.size() <= owned.most,
                 "touched and sum must have equal sizes, `most` or, where that is less, count");
  WINNOW_EXPECTS(job.fed != nullptr && job.terms != nullptr && job.touched_count != nullptr &&
                     job.result != nullptr,
                 "sums need fed, terms, touched_count and result in device memory");
  const SumsScratch layout(owned, job.term_count);
  WINNOW_EXPECTS(job.scratch.size() >= layout.bytes &&
                     reinterpret_cast<std::uintptr_t>(job.scratch.data()) % 256 == 0,
                 "sums need select_sums_scratch bytes of scratch, 256-byte aligned");
  std::byte* const scratch = job.scratch.data();
  auto* const sums = reinterpret_cast<float*>(scratch + layout.sums);
  const SelectTask select{
      // Where no sum is finite, marks and what is selected from are the same memory of NaN. What
      // is put back lands in memory that nobody reads.
      .gradient = sums,
      .residual = sums,
      .decay = 1,
      .zero_gradient = false,
      .count = static_cast<std::uint32_t>(owned.count),
      .k = 0,
      .competing = static_cast<std::uint32_t>(owned.count),
      .has_own = false,
      .own = make_select_own({}, nullptr),
      .base = static_cast<std::uint32_t>(owned.begin),
      .capacity = layout.capacity,
      .sample_runs = 0,
      .sample_rank = 0,
      .index = job.out.index.data(),
      .value = job.out.value.data(),
      .state = job.state,
      .result = job.result,
      .control = reinterpret_cast<SelectControl*>(scratch),
      .bins = reinterpret_cast<std::uint32_t*>(scratch + layout.select.bins),
      .stream_tiles = reinterpret_cast<std::uint64_t*>(scratch + layout.select.stream_tiles),
      .compact_tiles = reinterpret_cast<std::uint64_t*>(scratch + layout.select.compact_tiles),
      .candidate_index = reinterpret_cast<std::uint32_t*>(scratch + layout.select.candidate_index),
      .candidate_value = reinterpret_cast<float*>(scratch + layout.select.candidate_value),
      .bound = 0,
      .kept = nullptr};
  return {.select = select,
          .own = own,
          .residual = owned.residual.data(),
          .begin = owned.begin,
          .fed = job.fed,
          .terms = job.terms,
          .term_count = job.term_count,
          .slices = reinterpret_cast<std::uint32_t*>(scratch + layout.slices),
          .touched_count = job.touched_count,
          .touched = job.out.touched.data(),
          .sum = job.out.sum.data(),
          .touched_room = static_cast<std::uint32_t>(job.out.touched.size())};
}

inline SumsTask make_sums_task(const DeviceSelectSumsJob& job) {
  const std::size_t k = job.out.index.size();
  WINNOW_EXPECTS(k >= 1 && k <= job.owned.count && job.out.value.size() == k,
                 "index and value must have k elements each, 1 <= k <= count");
  WINNOW_EXPECTS(job.state != nullptr, "select_sums needs a state in device memory");
  SumsTask task = make_adding_task(job);
  task.select.k = static_cast<std::uint32_t>(k);
  return task;
}

inline SumsTask make_keep_task(const DeviceKeepSumsJob& job) {
  const OwnedSums& owned = job.owned;
  const std::span<std::uint32_t> index = job.out.index;
  WINNOW_EXPECTS(index.size() >= owned.count && job.out.value.size() == index.size() &&
                     index.size() <= std::numeric_limits<std::uint32_t>::max(),
                 "index and value must have as many places each, at least one for each own "
                 "element, and fewer than 2^32");
  WINNOW_EXPECTS(owned.own.index.size() >= owned.count && owned.most >= owned.count,
                 "there must be room for all own elements in the list of those that reach the "
                 "bound, and in touched and sum");
  WINNOW_EXPECTS(job.kept != nullptr, "keep_sums needs kept in device memory");
  SumsTask task = make_adding_task({.owned = owned,
                                    .fed = job.fed,
                                    .terms = job.terms,
                                    .term_count = job.term_count,
                                    .out = job.out,
                                    .touched_count = job.touched_count,
                                    .result = job.result,
                                    .scratch = job.scratch});
  task.select.capacity = static_cast<std::uint32_t>(index.size());
  task.select.candidate_index = index.data();
  task.select.candidate_value = job.out.value.data();
  task.select.kept = job.kept;
  return task;
}

}  // namespace winnow::kernels::cuda
