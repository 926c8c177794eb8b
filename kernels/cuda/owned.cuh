// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/placed_spans.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/terms.hpp"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/owned.hpp"

namespace winnow::kernels::cuda {

struct OwnedTask {
  Partition partition{1, 0};
  std::uint32_t owner;
  PlacedSpan only;  ///< if there is a single piece
  const PlacedSpan* pieces;
  std::uint32_t piece_count;
  DeviceTerm values;
  const std::uint64_t* count_at;
  ListRun only_run;  ///< if there is a single one
  const ListRun* runs;
  std::uint32_t run_count;

  WINNOW_DEVICE std::uint64_t count() const {
    return count_at != nullptr && *count_at < values.count ? *count_at : values.count;
  }
  /// Whether entry j of a list of runs is one of a run.
  WINNOW_DEVICE bool is_in_run(std::uint64_t j) const {
    std::uint32_t low = 0, high = run_count;  // the first that begins behind it
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (run(middle).begin <= j) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low > 0 && j - run(low - 1).begin < *run(low - 1).count;
  }
  WINNOW_DEVICE const ListRun& run(std::uint32_t i) const {
    return run_count == 1 ? only_run : runs[i];
  }
  /// The position of value j.
  WINNOW_DEVICE std::uint64_t position_of(std::uint64_t j) const {
    const std::uint64_t local = values.is_list ? values.index[j] : j;
    return partition.owners() == 1 ? local : partition.position(owner, local);
  }
  /// The element for value j; no data if its position is of no piece.
  WINNOW_DEVICE DeviceElements element_of(std::uint64_t j) const {
    const std::uint64_t position = position_of(j);
    const PlacedSpan piece = piece_count == 1 ? only : piece_of(position);
    const std::uint64_t offset = position - piece.base;
    const bool is_inside = position >= piece.base && offset < piece.elements.size();
    return is_inside ? device_elements(piece.elements).from(offset)
                     : DeviceElements{nullptr, ElementType::float32};
  }
  /// The last of several pieces that begins at a position or before it; else an empty one.
  WINNOW_DEVICE PlacedSpan piece_of(std::uint64_t position) const {
    std::uint32_t low = 0, high = piece_count;  // the first that begins behind it
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (pieces[middle].base <= position) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low == 0 ? PlacedSpan{} : pieces[low - 1];
  }
  /// Calls body(element, value) for value j, if there is one that goes somewhere. No position is
  /// named twice.
  template <class Body>
  WINNOW_DEVICE void with_value(std::uint64_t j, const Body& body) const {
    if (j >= count() || (run_count > 0 && !is_in_run(j))) return;
    const DeviceElements element = element_of(j);
    if (element.data == nullptr) return;
    with_coding(values.values,
                [&](auto coding) { body(element, value_at<decltype(coding)>(values.values, j)); });
  }
};

// Tasks of Pieces.

struct AddOwned {
  OwnedTask task;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t j) const {
    task.with_value(j,
                    [](const DeviceElements& element, float value) { *element.floats() += value; });
  }
};

struct StoreOwned {
  OwnedTask task;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t j) const {
    task.with_value(j, [](const DeviceElements& element, float value) {
      if (is_finite(value)) *element.floats() = value;
    });
  }
};

struct WriteOwned {
  OwnedTask task;
  std::uint64_t count;
  float factor;
  std::uint32_t *not_finite, *too_large;  ///< too_large may be null

  WINNOW_DEVICE void run(std::uint64_t j) const {
    task.with_value(j, [&](const DeviceElements& element, float value) {
      const float sum = value * factor;
      const ElementRange range = range_of(element.type);
      element.set(0, range.clip(sum));
      if (!is_finite(sum)) simt::atomic_or(not_finite, 1);
      if (range.exceeded_by(sum) && too_large != nullptr) simt::atomic_or(too_large, 1);
    });
  }
};

/// write_owned with rests. `residuals` are the task's pieces over again, as float32.
struct KeepOwnedRests {
  OwnedTask task;
  std::uint64_t count;
  float factor;
  DeviceSpans residuals;
  RestKeeper keeper;
  const std::uint32_t* rests_wait;

  WINNOW_DEVICE void run(std::uint64_t j) const {
    if (rests_wait != nullptr && *rests_wait == 0) return;
    task.with_value(j, [&](const DeviceElements& element, float value) {
      const float sum = value * factor;
      const ElementRange range = range_of(element.type);
      const std::uint64_t position = task.position_of(j);
      if (!range.exceeded_by(sum) || !keeper.keeps(position)) return;
      residuals.for_each(position, position + 1,
                         [&](const DeviceElements& residual, std::uint32_t, std::uint32_t) {
                           float& kept = *residual.floats();
                           kept = keeper.add_rest(kept, sum, range);
                         });
    });
  }
};

struct TakeOwned {
  OwnedTask task;
  std::uint64_t count;
  float* taken;

  WINNOW_DEVICE void run(std::uint64_t j) const {
    if (j >= task.count()) return;
    float* const element = task.element_of(j).floats();
    taken[j] = element != nullptr ? *element : 0;
    if (element != nullptr) *element = 0;
  }
};

/// A block writes one tile of positions after another.
struct FillPieces {
  DeviceSpans pieces;
  std::uint64_t begin, end;  ///< positions
  float value;
  static constexpr std::uint32_t kTile = simt::kThreads * 16;

  WINNOW_DEVICE void run() const {
    const float four[4] = {value, value, value, value};
    for (std::uint64_t tile = begin + std::uint64_t{simt::block()} * kTile; tile < end;
         tile += std::uint64_t{simt::blocks()} * kTile) {
      const std::uint64_t tile_end = tile + kTile < end ? tile + kTile : end;
      pieces.for_each(
          tile, tile_end, [&](const DeviceElements& elements, std::uint32_t, std::uint32_t size) {
            for (std::uint32_t i = simt::thread() * 4; i < size; i += simt::kThreads * 4) {
              elements.store(i, elements_below(size, i), four);
            }
          });
    }
  }
};

inline FillPieces make_fill(const Placed<PlacedSpan>& pieces, float value) {
  const std::span<const PlacedSpan> host = pieces.host;
  return {device_spans(pieces), host.empty() ? 0 : host.front().base,
          host.empty() ? 0 : host.back().end(), value};
}

/// How many values may go somewhere.
inline std::uint64_t moved(const OwnedJob& job) {
  return job.pieces.host.empty() ? 0 : job.most();
}

inline OwnedTask make_owned_task(const OwnedJob& job) {
  return {.partition = job.partition,
          .owner = job.owner,
          .only = job.pieces.host.size() == 1 ? job.pieces.host.front() : PlacedSpan{},
          .pieces = job.pieces.placed,
          .piece_count = static_cast<std::uint32_t>(job.pieces.host.size()),
          .values = device_term(job.values),
          .count_at = job.count,
          .only_run = job.runs.host.size() == 1 ? job.runs.host.front() : ListRun{},
          .runs = job.runs.placed,
          .run_count = static_cast<std::uint32_t>(job.runs.host.size())};
}

}  // namespace winnow::kernels::cuda
