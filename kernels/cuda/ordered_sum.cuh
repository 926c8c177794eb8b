// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <winnow/error.hpp>

#include "kernels/cuda/placed_spans.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/terms.hpp"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/ordered_sum.hpp"

namespace winnow::kernels::cuda {

struct SumTask {
  DeviceTerm here[kTermsInALaunch];
  const DeviceTerm* there;  ///< where not null, there they are
  std::uint32_t term_count;
  DeviceSpans sums;
  std::uint64_t begin, end;  ///< positions
  float factor;
  std::uint32_t* not_finite;  ///< may be null

  WINNOW_DEVICE const DeviceTerm& term(std::uint32_t i) const {
    return there == nullptr ? here[i] : there[i];
  }
};

/// Positions that a block of threads sums in shared memory: 4 vectors a thread.
inline constexpr std::uint32_t kSumTile = simt::kThreads * 16;

/// Adds terms in their order. A block owns a tile of positions, finds by binary search where it
/// begins and ends in each list, and adds the terms one after the other; within one, no position is
/// named twice. What of the tile belongs to a sum is written there.
struct OrderedSum {
  SumTask task;
  static constexpr std::uint32_t kGroup = 64;  // terms that are searched at a time

  struct Shared {
    float sum[kSumTile];
    std::uint64_t slice[2 * kGroup];  // where a list enters the tile, and where it leaves it
  };

  WINNOW_DEVICE void run(Shared& shared) const {
    const std::uint64_t begin = task.begin + std::uint64_t{simt::block()} * kSumTile;
    const std::uint64_t end = begin + kSumTile < task.end ? begin + kSumTile : task.end;
    for (std::uint32_t i = simt::thread() * 4; i < kSumTile; i += simt::kThreads * 4) {
      for (unsigned e = 0; e < 4; ++e) shared.sum[i + e] = 0;
    }
    if (task.term_count == 0) simt::barrier();
    for (std::uint32_t group = 0; group < task.term_count; group += kGroup) {
      const std::uint32_t left = task.term_count - group, terms = left < kGroup ? left : kGroup;
      const std::uint32_t mine = simt::thread();
      if (mine < 2 * terms) {
        shared.slice[mine] = first_from(task.term(group + mine / 2), mine % 2 == 0 ? begin : end);
      }
      simt::barrier();
      for (std::uint32_t p = 0; p < terms; ++p) {
        add(shared, task.term(group + p), begin, shared.slice[2 * p], shared.slice[2 * p + 1]);
        simt::barrier();
      }
    }
    write(shared, begin, end);
  }

 private:
  /// The first value of a term whose position is not below `position`.
  WINNOW_DEVICE static std::uint64_t first_from(const DeviceTerm& term, std::uint64_t position) {
    if (!term.is_list) return position;
    const std::uint32_t* const index = term.index;
    std::uint64_t first = 0, end = term.count;
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

  WINNOW_DEVICE static void add(Shared& shared, const DeviceTerm& term, std::uint64_t begin,
                                std::uint64_t from, std::uint64_t to) {
    // Without indices the term's values from `begin` on are those of the tile.
    const std::uint32_t* const index = term.is_list ? term.index + from : nullptr;
    const auto size = static_cast<std::uint32_t>(to - from),
               base = static_cast<std::uint32_t>(begin);
    const DeviceValues values = term.values;
    with_coding(values, [&](auto coding) {
      for (std::uint32_t i = simt::thread(); i < size; i += simt::kThreads) {
        const std::uint32_t at = index == nullptr ? i : index[i] - base;
        shared.sum[at] += value_at<decltype(coding)>(values, from + i);
      }
    });
  }

  WINNOW_DEVICE void write(const Shared& shared, std::uint64_t begin, std::uint64_t end) const {
    bool finite = true;
    task.sums.for_each(begin, end, [&](float* elements, std::uint32_t first, std::uint32_t size) {
      for (std::uint32_t i = simt::thread() * 4; i < size; i += simt::kThreads * 4) {
        const unsigned here = elements_below(size, i);
        float four[4];
        for (unsigned e = 0; e < 4; ++e) {
          four[e] = shared.sum[first + i + e];
          if (task.factor != 1) four[e] *= task.factor;
          finite = finite && (is_finite(four[e]) || (here >> e & 1) == 0);
        }
        store_vector(elements + i, here, four);
      }
    });
    if (!finite && task.not_finite != nullptr) simt::atomic_or(task.not_finite, 1);
  }
};

inline SumTask make_sum_task(const OrderedSumJob& job) {
  const auto& [terms, there] = job.terms;
  WINNOW_EXPECTS(
      there != nullptr || terms.size() <= kTermsInALaunch,
      "more than " + std::to_string(kTermsInALaunch) + " terms must lie in device memory, too");
  const std::span<const PlacedSpan> sums = job.sums.host;
  SumTask task{.here = {},
               .there = there,
               .term_count = static_cast<std::uint32_t>(terms.size()),
               .sums = device_spans(job.sums),
               .begin = sums.empty() ? 0 : sums.front().base,
               .end = sums.empty() ? 0 : sums.back().end(),
               .factor = job.factor,
               .not_finite = job.not_finite};
  if (there == nullptr) std::ranges::transform(terms, task.here, device_term);
  return task;
}

/// Blocks of an OrderedSum.
inline unsigned sum_tiles(const SumTask& task) {
  return static_cast<unsigned>((task.end - task.begin + kSumTile - 1) / kSumTile);
}

}  // namespace winnow::kernels::cuda
