// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/select_source.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"
#include "kernels/select_bound.hpp"

namespace winnow::kernels::cuda {

// The second half of a selection (feedback_select.cuh): from a source the k largest, exactly.

/// One digit of the k-th magnitude.
template <std::uint32_t kLevel>
struct CountDigits {
  using Task = SelectTask;
  struct Shared {
    DigitRoom digits;
    Turn turn;
  };

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    SelectControl& control = *task.control;
    if (task.k == 0 || control.scarce != 0 || control.shift == 0) return;
    // The last block changes them when all have read them.
    const std::uint32_t base = control.base, rank = control.rank;
    const std::uint32_t width = 1U << control.shift;
    const std::uint32_t shift = control.shift - digit_bits(control.shift);
    const Source source(task);
    std::uint32_t* const bins = shared.digits.bins;
    clear_bins(shared.digits);
    simt::barrier();
    for (std::uint32_t i = simt::block() * simt::kThreads + simt::thread(); i < source.count;
         i += simt::blocks() * simt::kThreads) {
      const std::uint32_t offset = magnitude(source.value[i]) - base;
      if (offset < width && source.counts(i) && source.competes(i)) {
        simt::atomic_add(&bins[offset >> shift], 1);
      }
    }
    simt::barrier();
    std::uint32_t* const all = task.bins + kLevel * kBins;
    for (std::uint32_t b = simt::thread(); b < kBins; b += simt::kThreads) {
      if (bins[b] != 0) simt::atomic_add(&all[b], bins[b]);
    }
    if (!is_last_block(shared.turn, &control.count_done[kLevel])) return;
    for (std::uint32_t b = simt::thread(); b < kBins; b += simt::kThreads) {
      bins[b] = simt::published(&all[b]);
    }
    simt::barrier();
    const Digit digit = pick_digit(shared.digits, rank);
    if (simt::thread() != 0) return;
    control.base = base + (digit.digit << shift);
    control.shift = shift;
    control.rank = rank - digit.above;
  }
};

/// Writes what is kept to the message, in index order, and puts other candidates back.
struct Compact {
  using Task = SelectTask;
  struct Shared {
    simt::ScanRoom above, ties;
    Turn turn;
  };

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    SelectControl& control = *task.control;
    const Source source(task);
    const std::uint32_t tiles = task.k == 0 ? 0 : select_tiles(source.count);
    while (true) {
      const std::uint32_t tile = next_tile(shared.turn, &control.compact_ticket);
      if (tile >= tiles) break;
      compact(shared, task, source, tile);
    }
    if (simt::grid_thread() == 0) report(task);  // what the kernels before have found
  }

 private:
  WINNOW_DEVICE static void compact(Shared& shared, const Task& task, const Source& source,
                                    std::uint32_t tile) {
    const SelectControl& control = *task.control;
    const bool whole = control.whole != 0, scarce = control.scarce != 0;
    const std::uint32_t cut = control.base;
    // Of those that tie, this many are kept, the first ones.
    const std::uint32_t ties = scarce ? task.k - control.finite : control.rank;
    float value[kSelectVectors][4];
    unsigned here[kSelectVectors], above[kSelectVectors], tied[kSelectVectors];
    unsigned counts[kSelectVectors];
    std::uint64_t above_count = 0, tied_count = 0;  // 16 bits a vector
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const std::uint32_t first = first_of(tile, j);
      here[j] = elements_below(source.count, first);
      if (here[j] != 0 && !source.competes(first)) here[j] = 0;
      load_vector(source.value + first, here[j], value[j]);
      above[j] = tied[j] = counts[j] = 0;
      for (unsigned e = 0; e < 4; ++e) {
        if ((here[j] >> e & 1) == 0) continue;
        const bool is_finite = source.counts(first + e);
        const std::uint32_t size = magnitude(value[j][e]);
        const bool is_above = is_finite && (scarce || size > cut);
        const bool is_tied = scarce ? !is_finite : is_finite && size == cut;
        above[j] |= (is_above ? 1U : 0U) << e;
        tied[j] |= (is_tied ? 1U : 0U) << e;
        counts[j] |= (is_finite ? 1U : 0U) << e;
        above_count += std::uint64_t{is_above} << 16 * j;
        tied_count += std::uint64_t{is_tied} << 16 * j;
      }
    }
    const simt::Scanned aboves = simt::scan(shared.above, above_count);
    const simt::Scanned ties_of = simt::scan(shared.ties, tied_count);
    std::uint32_t total_above = 0, total_tied = 0;
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      total_above += field(aboves.total, j);
      total_tied += field(ties_of.total, j);
    }
    const std::uint64_t before =
        look_back(shared.turn, task.compact_tiles, tile, pair_of(total_above, total_tied));
    std::uint32_t above_at = low_of(before), tied_at = high_of(before);
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      std::uint32_t above_before = above_at + field(aboves.before, j);
      std::uint32_t tied_before = tied_at + field(ties_of.before, j);
      above_at += field(aboves.total, j);
      tied_at += field(ties_of.total, j);
      for (unsigned e = 0; e < 4; ++e) {
        if ((here[j] >> e & 1) == 0) continue;
        const std::uint32_t i = first_of(tile, j) + e;
        const bool is_above = (above[j] >> e & 1) != 0, is_tied = (tied[j] >> e & 1) != 0;
        const bool is_finite = (counts[j] >> e & 1) != 0;
        if (is_above || (is_tied && tied_before < ties)) {
          const std::uint32_t at = above_before + (tied_before < ties ? tied_before : ties);
          task.index[at] = task.base + (whole ? i : task.candidate_index[i]);
          task.value[at] = is_finite ? value[j][e] : 0;
          if (whole && is_finite) task.residual[i] = 0;
        } else if (!whole) {
          task.residual[task.candidate_index[i]] = value[j][e];
        }
        above_before += is_above ? 1 : 0;
        tied_before += is_tied ? 1 : 0;
      }
    }
  }

  /// By one thread.
  WINNOW_DEVICE static void report(const Task& task) {
    const SelectControl& control = *task.control;
    const std::uint64_t limit = 2 * std::uint64_t{task.k} + 4096;
    const std::uint64_t candidates = control.candidates < limit ? control.candidates : limit;
    *task.result = {.finite = control.not_finite == 0,
                    .candidates = candidates,
                    .passes = control.whole != 0 ? 2U : 1U,
                    .listed = control.listed,
                    .listed_by = task.own.bound_of_step(),
                    .overflow = control.overflow != 0};
    if (task.k == 0 || control.keeps_bound != 0) return;
    SelectBound state = *task.state;
    learn_bound(state, task.k, control.scarce != 0 ? 0 : std::bit_cast<float>(control.base),
                candidates);
    *task.state = state;
  }
};

}  // namespace winnow::kernels::cuda
