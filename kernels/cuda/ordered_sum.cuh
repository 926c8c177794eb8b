// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <winnow/error.hpp>

#include "kernels/arithmetic/rest.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/placed_spans.cuh"
#include "kernels/cuda/search.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/staged_slice.cuh"
#include "kernels/cuda/terms.hpp"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/ordered_sum.hpp"

namespace winnow::kernels::cuda {

struct SumTask {
  DeviceTerm launched[kTermsInALaunch];
  const DeviceTerm* placed;  ///< where not null, they are in device memory
  std::uint32_t term_count;
  DeviceSpans sums;
  std::uint64_t begin, end;  ///< positions
  float factor;
  std::uint32_t *not_finite, *too_large;  ///< may be null
  DeviceSpans residuals;                  ///< with spans: instead of writing the sums
  RestKeeper keeper;
  const std::uint32_t* rests_wait;  ///< if not null: 0 where nothing is to be done
  std::uint32_t run;                ///< tiles of a block
  std::uint32_t log2_tiles;  ///< of the tiles for which a term is searched at a time, and one more

  WINNOW_DEVICE const DeviceTerm& term(std::uint32_t i) const {
    return placed == nullptr ? launched[i] : placed[i];
  }
};

/// Positions that a block of threads sums in shared memory at a time: 8 vectors a thread.
inline constexpr std::uint32_t kSumTile = simt::kThreads * 32;

/// Adds terms in their order. A block owns a run of tiles of positions. It searches where each list
/// enters each of the next tiles, which is where it leaves the one before; a thread searches once
/// for all of them. Then it comes to one tile after the other, and in each to rounds of terms:
/// their slices are copied to the stage together, and added one after the other; within one, no
/// position is named twice. A lane of each warp finds where one slice of a round lies. A slice that
/// the stage has no room for, and a term without indices, is added from where it is. The tile's
/// elements are written to their sums, while the first slices of the next tile are on their way.
struct OrderedSum {
  SumTask task;
  static constexpr std::uint32_t kSearches = simt::kThreads;
  static constexpr std::uint32_t kGroup = 64;  // terms that are searched together
  static constexpr unsigned kResident = 5;

  struct Shared {
    alignas(16) float sum[kSumTile];
    std::uint64_t entry[kSearches];   // of term p of the group and tile t: [p << log2_tiles | t]
    StagedSlice slice[simt::kLanes];  // of a round
    std::uint32_t stage[kStageWords];
  };

  WINNOW_DEVICE void run(Shared& shared) const {
    if (task.rests_wait != nullptr && *task.rests_wait == 0) return;
    const std::uint64_t begin = begin_of(0), left = (task.end - begin + kSumTile - 1) / kSumTile;
    const std::uint32_t tiles = left < task.run ? static_cast<std::uint32_t>(left) : task.run;
    Round round{};
    while (true) {
      const bool is_over = round.tile == tiles, is_next = round.tile > 0 && round.term == 0;
      if (!is_over) fetch(shared, round);
      if (is_next) {
        if (keeps_rests()) {
          keep_rests(shared, round.tile - 1);
        } else {
          write(shared, round.tile - 1);
        }
        if (is_over) return;
        simt::barrier();
      }
      if (round.term == 0) clear(shared);
      simt::await_copies();
      simt::barrier();
      add_round(shared, round);
      const bool is_last = round.end == task.term_count;
      if (is_last) ++round.tile;
      round.term = is_last ? 0 : round.end;
    }
  }

 private:
  /// The terms of a tile that are added behind one wait: [term, end), no more than lanes and of one
  /// group. There are searches from tile `searched` on. Tiles count from the block's first.
  struct Round {
    std::uint32_t tile, term, end, searched;
  };
  /// The elements of a term in a tile.
  struct Part {
    std::uint64_t from;
    std::uint32_t size;
  };

  WINNOW_DEVICE std::uint64_t begin_of(std::uint32_t tile) const {
    return task.begin + (std::uint64_t{simt::block()} * task.run + tile) * kSumTile;
  }
  /// The end of a tile, or the last position.
  WINNOW_DEVICE std::uint64_t end_of(std::uint32_t tile) const {
    const std::uint64_t end = begin_of(tile + 1);
    return end < task.end ? end : task.end;
  }

  /// Says which terms are next, from round.term on, and starts to copy their slices.
  WINNOW_DEVICE void fetch(Shared& shared, Round& round) const {
    const std::uint32_t first = round.term / kGroup * kGroup, left = task.term_count - first;
    const std::uint32_t end = first + (left < kGroup ? left : kGroup);
    const std::uint32_t unsearched = round.searched + (1U << task.log2_tiles) - 1;
    const bool is_new = task.term_count > kGroup
                            ? round.term == first
                            : round.term == 0 && (round.tile == 0 || round.tile == unsearched);
    if (is_new) search(shared, round, first, end);
    const std::uint32_t mine = round.term + simt::lane();
    StagedSlice slice = StagedSlice::none();
    if (mine < end && task.term(mine).is_list) {
      const Part part = part_of(shared, round, mine);
      slice = {task.term(mine), static_cast<std::uint32_t>(part.from), part.size};
    }
    const std::uint32_t words = slice.words(), behind = simt::warp_sum_to(words);
    slice.move(behind - words);
    const std::uint32_t without_room = simt::ballot(behind > kStageWords);
    const std::uint32_t room = without_room == 0 ? simt::kLanes : simt::lowest_one(without_room);
    round.end = end - round.term < room ? end : round.term + room;
    if (simt::thread() < simt::kLanes) shared.slice[simt::lane()] = slice;
    for (std::uint32_t q = simt::thread() / simt::kLanes; q < round.end - round.term;
         q += simt::kWarps) {
      const StagedSlice other = slice.of_lane(q);
      if (other.is_staged()) other.copy(task.term(round.term + q), shared.stage);
    }
  }

  /// Finds where terms [first, end) enter the next tiles, as many as there are places for.
  WINNOW_DEVICE void search(Shared& shared, Round& round, std::uint32_t first,
                            std::uint32_t end) const {
    const std::uint32_t mine = simt::thread(), p = first + (mine >> task.log2_tiles);
    const std::uint32_t tile = round.tile + (mine & ((1U << task.log2_tiles) - 1));
    if (p < end && tile <= task.run) {
      const std::uint64_t begin = begin_of(tile);
      shared.entry[mine] = first_from(task.term(p), begin < task.end ? begin : task.end);
    }
    round.searched = round.tile;
    simt::barrier();
  }

  /// The first entry of a list whose position is not below `position`.
  WINNOW_DEVICE static std::uint64_t first_from(const DeviceTerm& term, std::uint64_t position) {
    return term.is_list ? first_not_below(term.index, term.count, position) : position;
  }

  WINNOW_DEVICE Part part_of(const Shared& shared, const Round& round, std::uint32_t p) const {
    const std::uint64_t* const entry =
        shared.entry + ((p % kGroup) << task.log2_tiles) + (round.tile - round.searched);
    return {entry[0], static_cast<std::uint32_t>(entry[1] - entry[0])};
  }

  WINNOW_DEVICE static void clear(Shared& shared) {
    constexpr float kZero[4] = {};
    for (std::uint32_t i = simt::thread() * 4; i < kSumTile; i += simt::kThreads * 4) {
      simt::store4_here(shared.sum + i, kZero);
    }
  }

  WINNOW_DEVICE void add_round(Shared& shared, const Round& round) const {
    const auto base = static_cast<std::uint32_t>(begin_of(round.tile));
    for (std::uint32_t p = round.term; p < round.end; ++p) {
      const DeviceTerm& term = task.term(p);
      const StagedSlice& slice = shared.slice[p - round.term];
      if (slice.is_staged()) {
        add_staged(shared, term.values, slice, base);
      } else {
        add_part(shared, term, part_of(shared, round, p), base);
      }
      simt::barrier();
    }
  }

  WINNOW_DEVICE static void add_staged(Shared& shared, const DeviceValues& values,
                                       const StagedSlice& slice, std::uint32_t base) {
    with_coding(values, [&](auto coding) {
      for (std::uint32_t i = simt::thread(); i < slice.size(); i += simt::kThreads) {
        shared.sum[slice.index(shared.stage, i) - base] +=
            slice.template value<decltype(coding)>(values, shared.stage, i);
      }
    });
  }

  WINNOW_DEVICE static void add_part(Shared& shared, const DeviceTerm& term, const Part& part,
                                     std::uint32_t base) {
    // Without indices these are the values of all positions of the tile.
    const std::uint32_t* const index = term.is_list ? term.index + part.from : nullptr;
    const DeviceValues values = term.values;
    with_coding(values, [&](auto coding) {
      for (std::uint32_t i = simt::thread(); i < part.size; i += simt::kThreads) {
        const std::uint32_t at = index == nullptr ? i : index[i] - base;
        shared.sum[at] += value_at<decltype(coding)>(values, part.from + i);
      }
    });
  }

  WINNOW_DEVICE bool keeps_rests() const { return task.residuals.count > 0; }

  /// Residuals grow by what of the sums is too large for their elements.
  WINNOW_DEVICE void keep_rests(const Shared& shared, std::uint32_t tile) const {
    const std::uint64_t begin = begin_of(tile);
    task.sums.for_each_span(
        begin, end_of(tile), [&](std::uint32_t s, std::uint64_t from, std::uint64_t to) {
          const ElementRange range = range_of(task.sums.at(s).elements.type());
          const PlacedSpan& residual = task.residuals.at(s);
          float* const kept = device_elements(residual.elements).floats();
          for (std::uint64_t i = from + simt::thread(); i < to; i += simt::kThreads) {
            float sum = shared.sum[i - begin];
            if (task.factor != 1) sum *= task.factor;
            if (!range.exceeded_by(sum) || !task.keeper.keeps(i)) continue;
            float& here = kept[i - residual.base];
            here = task.keeper.add_rest(here, sum, range);
          }
        });
  }

  WINNOW_DEVICE void write(const Shared& shared, std::uint32_t tile) const {
    bool finite = true, fits = true;
    task.sums.for_each(
        begin_of(tile), end_of(tile),
        [&](const DeviceElements& elements, std::uint32_t first, std::uint32_t size) {
          const ElementRange range = range_of(elements.type);
          const bool clips = !elements.are_floats();
          for (std::uint32_t i = simt::thread() * 4; i < size; i += simt::kThreads * 4) {
            const unsigned here = elements_below(size, i);
            float four[4];
            simt::load4_here(shared.sum + first + i, four);  // spans begin at vectors
            for (unsigned e = 0; e < 4; ++e) {
              if (task.factor != 1) four[e] *= task.factor;
              finite = finite && (is_finite(four[e]) || (here >> e & 1) == 0);
            }
            for (unsigned e = 0; clips && e < 4; ++e) {
              fits = fits && (!range.exceeded_by(four[e]) || (here >> e & 1) == 0);
              four[e] = range.clip(four[e]);
            }
            elements.store(i, here, four);
          }
        });
    if (!finite && task.not_finite != nullptr) simt::atomic_or(task.not_finite, 1);
    if (!fits && task.too_large != nullptr) simt::atomic_or(task.too_large, 1);
  }
};

/// As many as there are searches for, each from its tile's begin: one more than tiles.
constexpr std::uint32_t log2_tiles(std::size_t terms) {
  const std::size_t together = std::clamp<std::size_t>(terms, 1, OrderedSum::kGroup);
  return static_cast<std::uint32_t>(std::bit_width(OrderedSum::kSearches / together) - 1);
}

inline SumTask make_sum_task(const OrderedSumJob& job) {
  const auto& [terms, placed] = job.terms;
  WINNOW_EXPECTS(
      placed != nullptr || terms.size() <= kTermsInALaunch,
      "more than " + std::to_string(kTermsInALaunch) + " terms must lie in device memory, too");
  const std::span<const PlacedSpan> sums = job.sums.host;
  SumTask task{.launched = {},
               .placed = placed,
               .term_count = static_cast<std::uint32_t>(terms.size()),
               .sums = device_spans(job.sums),
               .begin = sums.empty() ? 0 : sums.front().base,
               .end = sums.empty() ? 0 : sums.back().end(),
               .factor = job.factor,
               .not_finite = job.not_finite,
               .too_large = job.too_large,
               .residuals = device_spans(job.rests.residuals),
               .keeper = job.rests.keeper,
               .rests_wait = job.rests.too_large,
               .run = 1,
               .log2_tiles = log2_tiles(terms.size())};
  if (placed == nullptr) std::ranges::transform(terms, task.launched, device_term);
  return task;
}

/// Tiles of an OrderedSum.
inline std::uint64_t sum_tiles(const SumTask& task) {
  return (task.end - task.begin + kSumTile - 1) / kSumTile;
}

/// Gives each block so many tiles, and returns how many blocks there are.
inline unsigned sum_blocks(SumTask& task, std::uint64_t run) {
  task.run = static_cast<std::uint32_t>(run);
  return static_cast<unsigned>((sum_tiles(task) + run - 1) / run);
}

}  // namespace winnow::kernels::cuda
