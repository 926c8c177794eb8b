// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <winnow/error.hpp>

#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/terms.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::kernels::cuda {

/// The input of the kernels of select_sums. Positions of own elements count from `begin`, a local
/// number.
struct SumsTask {
  SelectTask select;      ///< of the candidates, or else of all sums
  SelectOwn own;          ///< with the list of elements that reached the bound
  const float* residual;  ///< acc, where own
  std::uint64_t begin;
  const SelectResult* accumulated;
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
  /// The list of own elements, which stands behind the terms.
  WINNOW_DEVICE std::uint32_t listed() const {
    return accumulated->listed < own.room ? static_cast<std::uint32_t>(accumulated->listed)
                                          : own.room;
  }
};

constexpr const SelectTask& select_of(const SumsTask& task) {
  return task.select;
}
constexpr SelectTask& select_of(SumsTask& task) {
  return task.select;
}

/// A tile's own elements; their sums lie in shared memory.
inline constexpr std::uint32_t kSumsTile = kSelectTile;

/// The layout of the scratch memory, behind what a selection needs.
struct SumsScratch {
  std::uint32_t capacity;  ///< every element that terms name or the list holds is a candidate
  SelectScratch select;
  std::size_t zeroed;  ///< as SelectScratch::zeroed
  std::size_t sums, slices, bytes;

  SumsScratch(const OwnedSums& owned, std::size_t term_count)
      : capacity(static_cast<std::uint32_t>(
            std::min<std::uint64_t>(owned.count, owned.own.index.size() + owned.most))),
        select(owned.count, capacity),
        zeroed(select.zeroed),
        sums(select.bytes),
        slices(sums + lines(owned.count * sizeof(float))),
        bytes(slices +
              lines((std::size_t{pass_tiles(static_cast<std::uint32_t>(owned.count))} + 1) *
                    (term_count + 1) * sizeof(std::uint32_t))) {}

 private:
  static std::size_t lines(std::size_t size) { return (size + 63) / 64 * 64; }
};

/// The input of the sums, as if they were alone, without a selection's. `memory`: as SumsScratch
/// lays it out.
template <class Job>
SumsTask make_adding_task(const Job& job, const DeviceTerm* terms, const SelectMemory& memory) {
  const OwnedSums& owned = job.owned;
  const auto term_count = static_cast<std::uint32_t>(job.terms.host.size());
  expect_selectable(owned.count);
  const SelectOwn own = make_select_own(owned.own, nullptr);
  WINNOW_EXPECTS(owned.begin % Partition::kUnit == 0 &&
                     owned.begin + owned.count <= std::numeric_limits<std::uint32_t>::max(),
                 "own elements must start at a local number that is a multiple of 64 and end below "
                 "2^32");
  WINNOW_EXPECTS(job.out.touched.size() >= std::min(owned.most, owned.count),
                 "touched and sum must have room for `most` or, where that is less, count");
  const SumsScratch layout(owned, term_count);
  const auto at = [&]<class T>(std::size_t offset, T*) {
    return reinterpret_cast<T*>(memory.at(offset, layout.zeroed));
  };
  float* const sums = at(layout.sums, static_cast<float*>(nullptr));
  const SelectTask select{
      // If no sum is finite, marks and what is selected from are the same memory of NaN. Elements
      // that are put back land in memory that nobody reads.
      .gradient = {sums, ElementType::float32},
      .residual = sums,
      .decay = 1,
      .precondition = {},
      .zero_gradient = false,
      .count = static_cast<std::uint32_t>(owned.count),
      .k = 0,
      .first_tile = 0,
      .competing = static_cast<std::uint32_t>(owned.count),
      .has_own = false,
      .side = Side::both,
      .own = make_select_own({}, nullptr),
      .base = static_cast<std::uint32_t>(owned.begin),
      .capacity = layout.capacity,
      .sample_runs = 0,
      .sample_rank = 0,
      .index = job.out.index.data(),
      .value = job.out.value.data(),
      .state = nullptr,
      .result = job.result,
      .control = reinterpret_cast<SelectControl*>(memory.zeroed),
      .bins = at(layout.select.bins, static_cast<std::uint32_t*>(nullptr)),
      .stream_tiles = at(layout.select.stream_tiles, static_cast<std::uint64_t*>(nullptr)),
      .compact_tiles = at(layout.select.compact_tiles, static_cast<std::uint64_t*>(nullptr)),
      .candidate_index = at(layout.select.candidate_index, static_cast<std::uint32_t*>(nullptr)),
      .candidate_value = at(layout.select.candidate_value, static_cast<float*>(nullptr)),
      .bound = 0,
      .kept = nullptr};
  return {.select = select,
          .own = own,
          .residual = owned.residual.data(),
          .begin = owned.begin,
          .accumulated = job.accumulated,
          .terms = terms,
          .term_count = term_count,
          .slices = at(layout.slices, static_cast<std::uint32_t*>(nullptr)),
          .touched_count = job.touched_count,
          .touched = job.out.touched.data(),
          .sum = job.out.sum.data(),
          .touched_room = static_cast<std::uint32_t>(job.out.touched.size())};
}

inline SumsTask make_sums_task(const SelectSumsJob& job, const DeviceTerm* terms,
                               const SelectMemory& memory) {
  SumsTask task = make_adding_task(job, terms, memory);
  task.select.k = static_cast<std::uint32_t>(job.out.index.size());
  task.select.state = job.state;
  return task;
}

inline SumsTask make_keep_task(const KeepSumsJob& job, const DeviceTerm* terms,
                               const SelectMemory& memory) {
  const std::span<std::uint32_t> index = job.out.index;
  WINNOW_EXPECTS(index.size() <= std::numeric_limits<std::uint32_t>::max(),
                 "index and value must have fewer than 2^32 places each");
  SumsTask task = make_adding_task(job, terms, memory);
  task.select.capacity = static_cast<std::uint32_t>(index.size());
  task.select.candidate_index = index.data();
  task.select.candidate_value = job.out.value.data();
  task.select.kept = job.kept;
  return task;
}

}  // namespace winnow::kernels::cuda
