// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <winnow/error.hpp>

#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/feedback_select.hpp"

namespace winnow::kernels::cuda {

/// The words by which the kernels of a selection tell each other; all zero before the first.
struct SelectControl {
  std::uint32_t bound;           ///< a magnitude: candidates reach it
  std::uint32_t bound_is_set;    ///< 1: those who wait for it may read it
  std::uint32_t candidates;      ///< that did
  std::uint32_t not_finite;      ///< elements whose acc is not
  std::uint32_t own_not_finite;  ///< those of them that are own
  std::uint32_t other_side;      ///< finite elements that are not on the side
  std::uint32_t finite;          ///< all others, which compete
  std::uint32_t listed;          ///< own elements that reach their bound
  std::uint32_t highest;         ///< magnitude of all finite ones that compete
  std::uint32_t far;             ///< candidates that are kNear above the bound, or more
  std::uint32_t whole;           ///< 1: the candidates do not serve; select from the whole residual
  std::uint32_t back;            ///< candidates that go back into the residual before that
  std::uint32_t scarce;          ///< 1: these are fewer than k
  std::uint32_t keeps_bound;     ///< 1: the step teaches no bound
  std::uint32_t overflow;        ///< 1: what terms name found no room
  /// The k-th magnitude lies in [base[0], base[0] + 2^shift) and is the rank[0]-th there, from 1;
  /// and so for what is left of the shift behind each digit.
  std::uint32_t base[kLevels + 1], rank[kLevels + 1], shift;
  std::uint32_t sample_ticket, sample_done;
  std::uint32_t stream_ticket, stream_done;
  std::uint32_t cut_ticket, cut_done[kLevels + 1], cut_over[kLevels + 1];  ///< of each phase
};

/// Small ones force rare paths in tests.
struct SelectLimits {
  std::uint32_t spare = 4096;            ///< candidates beside 2k
  std::uint32_t sample_from = 1U << 18;  ///< smaller counts start at bound 0
  std::uint32_t sample_runs = 2048;      ///< of 16 elements each, spread over the whole

  std::uint32_t sample_runs_of(std::size_t count, std::size_t k) const {
    return count < sample_from || k == 0 ? 0 : sample_runs;
  }
};

/// Units that do not compete, and room for those of their elements that reach a bound.
struct SelectOwn {
  Partition partition;
  std::uint32_t self = 0;
  std::uint64_t base = 0;
  float bound = 0;
  const float* bound_at = nullptr;  ///< where not null, there is the bound
  std::uint32_t room = 0;
  std::uint32_t* index = nullptr;
  float* value = nullptr;

  /// Whether element i, and its unit with it, is one of them.
  WINNOW_DEVICE bool has(std::uint32_t i) const {
    return partition.owner_of_unit((base + i) / Partition::kUnit) == self;
  }
  /// The local number of element i.
  WINNOW_DEVICE std::uint32_t local(std::uint32_t i) const {
    return static_cast<std::uint32_t>(partition.local(base + i));
  }
  WINNOW_DEVICE float bound_of_step() const { return bound_at != nullptr ? *bound_at : bound; }
};

struct SelectTask {
  DeviceElements gradient;
  float* residual;
  float decay;
  Precondition precondition;  ///< of the gradient, by the pass
  bool zero_gradient;
  std::uint32_t count, k;
  std::uint32_t first_tile;  ///< among those of all tasks of a launch
  std::uint32_t competing;   ///< elements that are not own
  bool has_own;
  Side side;
  SelectOwn own;
  std::uint32_t base;         ///< of indices
  std::uint32_t capacity;     ///< candidates that there is room for
  std::uint32_t sample_runs;  ///< 0: too few elements for a sample
  std::uint32_t sample_rank;  ///< of the bound in the sample
  std::uint32_t* index;
  float* value;
  SelectBound* state;
  SelectResult* result;
  SelectControl* control;
  std::uint32_t* bins;  ///< kBins a level; none for a single tile
  std::uint64_t *stream_tiles, *compact_tiles;
  std::uint32_t* candidate_index;
  float* candidate_value;
  // If a bound alone decides, the candidates are kept, by position:
  std::uint32_t bound;  ///< a magnitude
  std::uint64_t* kept;  ///< those of passes before, behind which they go

  /// Room for the magnitudes of the sample, until candidates come there.
  WINNOW_DEVICE std::uint32_t* sample() const { return candidate_index; }
};

/// The selection that a task is, or has.
constexpr const SelectTask& select_of(const SelectTask& task) {
  return task;
}
constexpr SelectTask& select_of(SelectTask& task) {
  return task;
}

inline constexpr std::uint32_t kSampleRun = 16;
/// Elements of a tile: 4 vectors a thread.
inline constexpr std::uint32_t kSelectVectors = 4;
inline constexpr std::uint32_t kSelectTile = simt::kThreads * 4 * kSelectVectors;
inline constexpr std::uint32_t kTileUnits = kSelectTile / Partition::kUnit;

constexpr std::uint32_t select_tiles(std::uint32_t count) {
  return (count + kSelectTile - 1) / kSelectTile;
}
/// Tiles of the pass over a parameter: an empty one has one, too, whose block ends its pass.
constexpr std::uint32_t pass_tiles(std::uint32_t count) {
  return count == 0 ? 1 : select_tiles(count);
}

constexpr std::uint32_t select_capacity(std::size_t count, std::size_t k,
                                        const SelectLimits& limits) {
  return static_cast<std::uint32_t>(std::min(count, 2 * k + limits.spare));
}

/// The layout of the scratch memory of a task.
struct SelectScratch {
  std::size_t bins, stream_tiles, compact_tiles;
  std::size_t zeroed;  ///< bytes from the start on that must be zero
  std::size_t candidate_index, candidate_value, bytes;

  SelectScratch(std::size_t count, std::uint32_t capacity, std::uint32_t sampled = 0) {
    const std::size_t tiles = pass_tiles(static_cast<std::uint32_t>(count));
    std::size_t end = 0;
    const auto take = [&end](std::size_t size) {
      const std::size_t at = end;
      end += (size + 63) / 64 * 64;
      return at;
    };
    take(sizeof(SelectControl));
    bins = take(tiles == 1 ? 0 : kLevels * kBins * sizeof(std::uint32_t));
    stream_tiles = take(tiles * sizeof(std::uint64_t));
    compact_tiles = take(tiles * sizeof(std::uint64_t));
    zeroed = end;
    candidate_index = take(std::max(capacity, sampled) * sizeof(std::uint32_t));
    candidate_value = take(capacity * sizeof(float));
    bytes = end;
  }
};

/// Scratch of a task: its first part is zero, and the other one stands behind that or elsewhere.
struct SelectMemory {
  std::byte *zeroed, *rest;

  /// Both parts at 64-byte aligned `scratch`.
  template <class Layout>
  static SelectMemory in(std::byte* scratch, const Layout& layout) {
    return {scratch, scratch + layout.zeroed};
  }
  /// The object at an offset in a layout whose first part has `zeroed_bytes`.
  std::byte* at(std::size_t offset, std::size_t zeroed_bytes) const {
    return offset < zeroed_bytes ? zeroed + offset : rest + (offset - zeroed_bytes);
  }
};

/// Rank in a sample of `sampled` elements, uniform but for chance, that a little more than k of
/// `count` elements reach: four standard deviations of caution. Own elements are sampled too, but
/// `count` is of those that compete.
inline std::uint32_t sample_rank(std::size_t sampled, std::size_t count, std::size_t k) {
  const double expected =
      static_cast<double>(sampled) * static_cast<double>(k) / static_cast<double>(count);
  return static_cast<std::uint32_t>(expected + 4 * std::sqrt(expected) + 4);
}

/// A tile's counts are two numbers of 31 bits.
inline void expect_selectable(std::size_t count) {
  WINNOW_EXPECTS(count <= std::numeric_limits<std::int32_t>::max(),
                 "a parameter in device memory must have fewer than 2^31 elements, not " +
                     std::to_string(count) + "; cut it into pieces");
}

inline SelectOwn make_select_own(const OwnUnits& own, const float* bound_at) {
  if (own.partition == nullptr) {
    constexpr std::uint32_t kNobody = ~0U;
    return {
        .partition = Partition(1, 0), .self = kNobody, .bound = own.bound, .bound_at = bound_at};
  }
  WINNOW_EXPECTS(own.base % Partition::kUnit == 0,
                 "a parameter with own units must start at a multiple of 64, not at " +
                     std::to_string(own.base));
  WINNOW_EXPECTS(own.self < own.partition->owners(),
                 "the owner of own units must be one of the partition's");
  WINNOW_EXPECTS(own.index.size() == own.value.size(),
                 "the list of own elements needs a value for each index");
  return {.partition = *own.partition,
          .self = own.self,
          .base = own.base,
          .bound = own.bound,
          .bound_at = bound_at,
          .room = static_cast<std::uint32_t>(own.index.size()),
          .index = own.index.data(),
          .value = own.value.data()};
}

/// The input of the pass over memory, as if it were alone: for a selection that knows no k yet.
inline SelectTask make_pass_task(const FeedbackSelectJob& job, std::uint32_t capacity,
                                 const SelectMemory& memory, std::uint32_t sample_runs = 0) {
  const std::size_t count = job.spans.gradient.size();
  expect_selectable(count);
  const SelectScratch layout(count, capacity, sample_runs * kSampleRun);
  const auto at = [&]<class T>(std::size_t offset, T*) {
    return reinterpret_cast<T*>(memory.at(offset, layout.zeroed));
  };
  return {.gradient = device_elements(job.spans.gradient),
          .residual = job.spans.residual.data(),
          .decay = job.spans.decay,
          .precondition = job.spans.precondition,
          .zero_gradient = job.gradient_after == GradientAfter::zero,
          .count = static_cast<std::uint32_t>(count),
          .k = 0,
          .first_tile = 0,
          .competing = static_cast<std::uint32_t>(count - job.spans.own.size(count)),
          .has_own = job.spans.own.partition != nullptr,
          .side = job.side,
          .own = make_select_own(job.spans.own, job.own_bound),
          .base = job.base,
          .capacity = capacity,
          .sample_runs = sample_runs,
          .sample_rank = 0,
          .index = job.index.data(),
          .value = job.value.data(),
          .state = job.state,
          .result = job.result,
          .control = reinterpret_cast<SelectControl*>(memory.zeroed),
          .bins = at(layout.bins, static_cast<std::uint32_t*>(nullptr)),
          .stream_tiles = at(layout.stream_tiles, static_cast<std::uint64_t*>(nullptr)),
          .compact_tiles = at(layout.compact_tiles, static_cast<std::uint64_t*>(nullptr)),
          .candidate_index = at(layout.candidate_index, static_cast<std::uint32_t*>(nullptr)),
          .candidate_value = at(layout.candidate_value, static_cast<float*>(nullptr)),
          .bound = 0,
          .kept = nullptr};
}

inline SelectScratch select_scratch(const FeedbackSelectJob& job, const SelectLimits& limits = {}) {
  const std::size_t count = job.spans.gradient.size(), k = job.index.size();
  expect_selectable(count);
  return {count, select_capacity(count, k, limits), limits.sample_runs_of(count, k) * kSampleRun};
}

/// `memory`: as select_scratch lays it out.
inline SelectTask make_select_task(const FeedbackSelectJob& job, const SelectMemory& memory,
                                   const SelectLimits& limits = {}) {
  const std::size_t count = job.spans.gradient.size(), k = job.index.size();
  const std::uint32_t runs = limits.sample_runs_of(count, k);
  SelectTask task = make_pass_task(job, select_capacity(count, k, limits), memory, runs);
  task.k = static_cast<std::uint32_t>(k);
  if (runs > 0) {
    task.sample_rank = sample_rank(std::size_t{runs} * kSampleRun, task.competing, k);
  }
  return task;
}

/// `memory`: as SelectScratch(count, 0) lays it out.
inline SelectTask make_threshold_task(const FeedbackThresholdJob& job, const SelectMemory& memory) {
  const FeedbackSelectJob pass{.spans = job.spans,
                               .base = job.base,
                               .result = job.result,
                               .gradient_after = job.gradient_after};
  SelectTask task = make_pass_task(pass, 0, memory);
  task.capacity = static_cast<std::uint32_t>(job.index.size());
  task.candidate_index = job.index.data();
  task.candidate_value = job.value.data();
  task.bound = std::bit_cast<std::uint32_t>(job.bound);
  task.kept = job.kept;
  return task;
}

}  // namespace winnow::kernels::cuda
