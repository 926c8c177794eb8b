// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/select_tile.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

/// Candidates that lie less than this above the bound, a quarter of it or more, are told apart by
/// two digits. The k-th is nearly always one of them, however far above them the largest is.
inline constexpr std::uint32_t kNear = 1U << 2 * kDigitBits;

/// One thread sets between which magnitudes Cut looks for the k-th. None is above `highest`. Where
/// candidates serve, all reach `bound`, and `far` of them kNear more; or all of them, if nobody has
/// counted these.
WINNOW_DEVICE void expect_kth(SelectControl& control, std::uint32_t k, std::uint32_t bound,
                              std::uint32_t far, std::uint32_t highest) {
  const bool is_near = control.whole == 0 && far < k && highest - bound >= kNear;
  control.base[0] = control.whole != 0 ? 0 : bound;
  control.rank[0] = is_near ? k - far : k;
  const std::uint32_t span = is_near ? kNear - 1 : highest - control.base[0];
  while (span >> control.shift != 0) ++control.shift;
}

/// One thread records the result when a pass is over that keeps all that reaches a bound.
WINNOW_DEVICE void report_kept(const SelectTask& task, std::uint32_t kept) {
  const SelectControl& control = *task.control;
  *task.result = {.finite = simt::published(&control.not_finite) == 0,
                  .candidates = kept,
                  .passes = 1,
                  .listed = simt::published(&control.listed),
                  .listed_by = task.own.bound_of_step()};
  const std::uint64_t end = *task.kept + kept;
  *task.kept = end < task.capacity ? end : task.capacity;
}

/// The source of the selection, once the pass is over: the candidates, or all that is finite, on
/// the side and not own.
struct Source {
  const float* value;
  DeviceElements marks;  // not finite where the value does not count; no data: all count
  const SelectOwn* own;  // of these none competes; null: all do
  SideKey side;
  std::uint32_t count;

  WINNOW_DEVICE explicit Source(const SelectTask& task) : side(task.side) {
    const SelectControl& control = *task.control;
    const bool whole = control.whole != 0;
    value = whole ? task.residual : task.candidate_value;
    marks = task.gradient;
    if (!whole || control.not_finite == 0) marks.data = nullptr;
    own = whole && task.has_own ? &task.own : nullptr;
    count = whole ? task.count : control.candidates;
  }
  /// This thread's vectors of a tile; of a whole one all are on their way before the first is here.
  WINNOW_DEVICE void load(std::uint32_t tile, float (&to)[kSelectVectors][4]) const {
    if (count / kSelectTile > tile && is_vector(value)) {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        simt::load4(value + first_of(tile, j), to[j]);
      }
      return;
    }
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const std::uint32_t first = first_of(tile, j);
      load_vector(value + first, elements_below(count, first), to[j]);
    }
  }
  /// Alike for all elements of a unit.
  WINNOW_DEVICE bool competes(std::uint32_t i) const { return own == nullptr || !own->has(i); }
  /// Whether the acc of element i, with this value, was finite and on the side.
  WINNOW_DEVICE bool counts(std::uint32_t i, float x) const {
    return (marks.data == nullptr || is_finite(marks.at(i))) && side.has(x);
  }
};

}  // namespace winnow::kernels::cuda
