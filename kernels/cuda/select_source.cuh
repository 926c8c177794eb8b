// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

/// The first element of this thread's vector j of a tile. Vector j of all threads comes before
/// vector j + 1 of any.
WINNOW_DEVICE std::uint32_t first_of(std::uint32_t tile, std::uint32_t j) {
  return tile * kSelectTile + j * (simt::kThreads * 4) + simt::thread() * 4;
}

/// The count of vector j, of 4 that are summed together in 16 bits each.
WINNOW_DEVICE std::uint32_t field(std::uint64_t counts, std::uint32_t j) {
  return static_cast<std::uint32_t>(counts >> 16 * j & 0xffff);
}

/// Places in a tile, in order, for what a thread has counted in its 4 vectors.
struct Places {
  std::uint64_t first = 0;  ///< of vector j, in field j: at most the tile's elements
  std::uint32_t total = 0;  ///< in the whole tile

  WINNOW_DEVICE Places() {}
  WINNOW_DEVICE explicit Places(const simt::Scanned& scanned) {
    const std::uint64_t to_end = scanned.total * 0x0001'0001'0001'0001U;  // of each vector
    first = scanned.before + (to_end << 16);
    total = field(to_end, 3);
  }
};

/// By one thread, when a pass is over that keeps all that reaches a bound, which it tells of.
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
  const float* marks;    // not finite where the value does not count; null: all count
  const SelectOwn* own;  // of these none competes; null: all do
  SideKey side;
  std::uint32_t count;

  WINNOW_DEVICE explicit Source(const SelectTask& task) : side(task.side) {
    const SelectControl& control = *task.control;
    const bool whole = control.whole != 0;
    value = whole ? task.residual : task.candidate_value;
    marks = whole && control.not_finite != 0 ? task.gradient : nullptr;
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
    return (marks == nullptr || is_finite(marks[i])) && side.has(x);
  }
};

}  // namespace winnow::kernels::cuda
