// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/arithmetic/select_bound.hpp"
#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/select_source.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/tasks.cuh"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

/// The second half of a selection (feedback_select.cuh) of one task: from a source the k largest,
/// exactly.
///
/// Several phases, each over all tiles of its own:
/// - candidates that do not serve go back into the residual;
/// - a digit each time: the magnitude of the k-th, and how many that equal it are kept;
/// - what is kept goes to the message, in index order, and other candidates back to the residual.
///
/// Blocks draw the tiles of all phases in order, and who has drawn one of a phase waits until the
/// phase before is over: for blocks that run, as look_back does.
struct TaskCut {
  const SelectTask& task;
  struct Shared {
    DigitRoom digits;
    simt::ScanRoom above, ties;
    TileTicket turn;
  };

  /// Returns when all tiles are drawn. One block of those that come is the first.
  WINNOW_DEVICE void run(Shared& shared, bool is_first) const {
    if (task.k == 0) {
      if (is_first && simt::thread() == 0) report(0);
      return;
    }
    const Phases phases(task);
    std::uint32_t phase = 0, begin = 0;  // its first ticket
    std::uint32_t mine = 0;              // tiles of it that this block has drawn
    while (true) {
      const std::uint32_t ticket = next_tile(shared.turn, &task.control->cut_ticket);
      while (phase < phases.count() && ticket - begin >= phases.tiles(phase)) {
        if (mine > 0) leave(shared, phases, phase, mine);
        begin += phases.tiles(phase++);
        mine = 0;
      }
      if (phase == phases.count()) return;
      if (mine++ == 0) enter(shared, phases, phase);
      const std::uint32_t tile = ticket - begin;
      if (phase == kBack) {
        restore(tile);
      } else if (phase < phases.last()) {
        count_digits(shared.digits, phases, phase, tile);
      } else {
        compact(shared, phases, tile);
      }
    }
  }

 private:
  static constexpr std::uint32_t kBack = 0;  // the first phase; then a phase for each digit

  struct Phases {
    std::uint32_t back_tiles, source_tiles, shift;

    WINNOW_DEVICE explicit Phases(const SelectTask& task)
        : back_tiles(select_tiles(task.control->back)),
          source_tiles(select_tiles(Source(task).count)),
          shift(task.control->shift) {}
    WINNOW_DEVICE std::uint32_t digits() const { return (shift + kDigitBits - 1) / kDigitBits; }
    WINNOW_DEVICE std::uint32_t last() const { return digits() + 1; }
    WINNOW_DEVICE std::uint32_t count() const { return digits() + 2; }
    WINNOW_DEVICE std::uint32_t tiles(std::uint32_t phase) const {
      return phase == kBack ? back_tiles : source_tiles;
    }
    /// Bits that are left when `found` digits are.
    WINNOW_DEVICE std::uint32_t shift_behind(std::uint32_t found) const {
      return shift < found * kDigitBits ? 0 : shift - found * kDigitBits;
    }
  };

  /// For the block, before its first tile of a phase.
  WINNOW_DEVICE void enter(Shared& shared, const Phases& phases, std::uint32_t phase) const {
    if (phase == kBack) return;
    clear_bins(shared.digits);
    if (phases.tiles(phase - 1) > 0) {
      wait_for(&task.control->cut_over[phase - 1]);
    } else {
      simt::barrier();
    }
  }

  /// For the block, after its last tile of a phase. `mine`: how many tiles it had. The last block
  /// to come ends the phase.
  WINNOW_DEVICE void leave(Shared& shared, const Phases& phases, std::uint32_t phase,
                           std::uint32_t mine) const {
    if (phase == phases.last()) return;
    SelectControl& control = *task.control;
    std::uint32_t* const bins = shared.digits.bins;
    const bool counts = phase != kBack;
    if (mine < phases.tiles(phase)) {  // else it has counted all of it
      std::uint32_t* const all = counts ? task.bins + (phase - 1) * kBins : nullptr;
      for (std::uint32_t b = simt::thread(); counts && b < kBins; b += simt::kThreads) {
        if (bins[b] != 0) simt::atomic_add(&all[b], bins[b]);
      }
      if (!is_last_block(shared.turn, &control.cut_done[phase], mine, phases.tiles(phase))) return;
      for (std::uint32_t b = simt::thread(); counts && b < kBins; b += simt::kThreads) {
        bins[b] = simt::published(&all[b]);
      }
      simt::barrier();
    }
    if (counts) {
      const std::uint32_t base = simt::published(&control.base[phase - 1]);
      const std::uint32_t rank = simt::published(&control.rank[phase - 1]);
      const Digit digit = find_digit(shared.digits, rank);
      if (simt::thread() == 0) {
        simt::publish(&control.base[phase], base + (digit.digit << phases.shift_behind(phase)));
        simt::publish(&control.rank[phase], rank - digit.above);
      }
    }
    if (simt::thread() != 0) return;
    simt::fence();
    simt::publish(&control.cut_over[phase], 1U);
  }

  WINNOW_DEVICE void restore(std::uint32_t tile) const {
    const std::uint32_t end = task.control->back;
    for (std::uint32_t j = 0; j < kSelectTile; j += simt::kThreads) {
      const std::uint32_t c = tile * kSelectTile + j + simt::thread();
      if (c < end) task.residual[task.candidate_index[c]] = task.candidate_value[c];
    }
    simt::barrier();
  }

  /// Digit number `phase`, from 1.
  WINNOW_DEVICE void count_digits(DigitRoom& room, const Phases& phases, std::uint32_t phase,
                                  std::uint32_t tile) const {
    const Source source(task);
    const std::uint32_t base = simt::published(&task.control->base[phase - 1]);
    const std::uint32_t width = 1U << phases.shift_behind(phase - 1);
    const std::uint32_t shift = phases.shift_behind(phase);
    float value[kSelectVectors][4];
    source.load(tile, value);
    WINNOW_UNROLLED
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const std::uint32_t first = first_of(tile, j);
      const unsigned here = elements_below(source.count, first);
      if (here == 0 || !source.competes(first)) continue;
      WINNOW_UNROLLED
      for (unsigned e = 0; e < 4; ++e) {
        const float x = value[j][e];
        const std::uint32_t offset = magnitude(x) - base;
        if ((here >> e & 1) != 0 && offset < width && source.counts(first + e, x)) {
          simt::atomic_add(&room.bins[offset >> shift], 1);
        }
      }
    }
    simt::barrier();
  }

  WINNOW_DEVICE void compact(Shared& shared, const Phases& phases, std::uint32_t tile) const {
    const SelectControl& control = *task.control;
    const Source source(task);
    const bool whole = control.whole != 0, scarce = control.scarce != 0;
    const std::uint32_t cut = simt::published(&control.base[phases.digits()]);
    // This many of those that tie are kept, the first ones.
    const std::uint32_t ties =
        scarce ? task.k - control.finite : simt::published(&control.rank[phases.digits()]);
    if (tile == 0 && simt::thread() == 0) report(cut);
    float value[kSelectVectors][4];
    source.load(tile, value);
    std::uint32_t here = 0, above = 0, tied = 0, counts = 0;  // a bit for each element
    std::uint64_t above_count = 0, tied_count = 0;            // 16 bits a vector
    WINNOW_UNROLLED
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      const std::uint32_t first = first_of(tile, j);
      unsigned here_of = elements_below(source.count, first);
      if (here_of != 0 && !source.competes(first)) here_of = 0;
      here |= here_of << 4 * j;
      WINNOW_UNROLLED
      for (unsigned e = 0; e < 4; ++e) {
        const std::uint32_t bit = 1U << (4 * j + e);
        if ((here & bit) == 0) continue;
        const bool is_counted = source.counts(first + e, value[j][e]);
        const std::uint32_t size = magnitude(value[j][e]);
        const bool is_above = is_counted && (scarce || size > cut);
        const bool is_tied = scarce ? !is_counted : is_counted && size == cut;
        if (is_above) above |= bit;
        if (is_tied) tied |= bit;
        if (is_counted) counts |= bit;
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
    WINNOW_UNROLLED
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      std::uint32_t above_before = above_at + field(aboves.before, j);
      std::uint32_t tied_before = tied_at + field(ties_of.before, j);
      above_at += field(aboves.total, j);
      tied_at += field(ties_of.total, j);
      WINNOW_UNROLLED
      for (unsigned e = 0; e < 4; ++e) {
        const std::uint32_t bit = 1U << (4 * j + e), i = first_of(tile, j) + e;
        if ((here & bit) == 0) continue;
        const bool is_above = (above & bit) != 0, is_tied = (tied & bit) != 0;
        const bool is_counted = (counts & bit) != 0;
        if (is_above || (is_tied && tied_before < ties)) {
          const std::uint32_t at = above_before + (tied_before < ties ? tied_before : ties);
          task.index[at] = task.base + (whole ? i : task.candidate_index[i]);
          task.value[at] = is_counted ? value[j][e] : 0;
          if (whole && is_counted) task.residual[i] = 0;
        } else if (!whole) {
          task.residual[task.candidate_index[i]] = value[j][e];
        }
        above_before += is_above ? 1 : 0;
        tied_before += is_tied ? 1 : 0;
      }
    }
  }

  /// One thread records the result when the magnitude of the k-th is known.
  WINNOW_DEVICE void report(std::uint32_t cut) const {
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
    learn_bound(state, task.k, control.scarce != 0 ? 0 : std::bit_cast<float>(cut), candidates);
    *task.state = state;
  }
};

/// The cut of all tasks. A block comes to each task that one of its tiles is of, counted as in the
/// pass: so a task has as many blocks as tiles, or all.
template <class Tasks>
struct Cut {
  Tasks tasks;
  static constexpr unsigned kResident = 3;
  struct Shared {
    TaskCut::Shared cut;
    typename Tasks::Room room;
  };

  WINNOW_DEVICE void run(Shared& shared) const {
    const std::uint32_t blocks = simt::blocks();
    for (std::uint32_t tile = simt::block(); tile < tasks.tiles();) {
      const SelectTask& task = select_of(tasks.fetch(shared.room, tile));
      TaskCut{task}.run(shared.cut, tile == task.first_tile);
      const std::uint32_t end = task.first_tile + pass_tiles(task.count);
      tile += (end - tile + blocks - 1) / blocks * blocks;  // its first one of another task
    }
  }
};

}  // namespace winnow::kernels::cuda
