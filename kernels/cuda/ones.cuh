// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/look_back.cuh"
#include "kernels/cuda/ones_tiles.hpp"
#include "kernels/cuda/simt.hpp"

// Ascending numbers as the ones of a row of bits, in words of 64.

namespace winnow::kernels::cuda {

/// Word w of the row whose ones are at place(0) < place(1) < ... < place(k - 1): found by a binary
/// search, so that each thread can make whole words.
template <class Place>
WINNOW_DEVICE std::uint64_t word_of_ones(std::uint64_t w, std::uint64_t k, const Place& place) {
  std::uint64_t first = 0, end = k;  // the first number whose place is not before the word
  while (first < end) {
    const std::uint64_t middle = first + (end - first) / 2;
    if (place(middle) < 64 * w) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  std::uint64_t word = 0;
  for (std::uint64_t i = first; i < k && place(i) < 64 * (w + 1); ++i) {
    word |= std::uint64_t{1} << (place(i) - 64 * w);
  }
  return word;
}

/// A row that is read.
struct OnesTask {
  const std::byte* row;
  std::uint64_t words;
  std::uint64_t k;        ///< ones that it should have
  std::uint32_t* ticket;  ///< 0 at first
  std::uint64_t* tiles;   ///< words of look_back
};

struct OnesRoom {
  simt::ScanRoom scan;
  TileTicket turn;
};

/// A row and its scratch, ones_scratch(words) zeros.
inline OnesTask make_ones_task(const std::byte* row, std::uint64_t words, std::uint64_t k,
                               std::byte* scratch) {
  return {.row = row,
          .words = words,
          .k = k,
          .ticket = reinterpret_cast<std::uint32_t*>(scratch),
          .tiles = reinterpret_cast<std::uint64_t*>(scratch + 256)};
}

/// Calls each(i, place) for one number i, counted from 0 and below k; how many there are before a
/// word is known by look-back. A thread goes through kWords words at a time, so few where they are
/// dense. Returns false, in some thread, where there are not k ones. All threads of a grid call it.
template <std::uint32_t kWords, class Each>
WINNOW_DEVICE bool for_each_one(OnesRoom& room, const OnesTask& task, const Each& each) {
  const std::uint64_t tiles = ones_tiles(task.words, kWords);
  bool sound = tiles > 0 || task.k == 0;
  while (true) {
    const std::uint32_t tile = next_tile(room.turn, task.ticket);
    if (tile >= tiles) return sound;
    const std::uint64_t first = (std::uint64_t{tile} * simt::kThreads + simt::thread()) * kWords;
    std::uint64_t word[kWords];
    std::uint32_t ones = 0;
    for (std::uint32_t w = 0; w < kWords; ++w) {
      word[w] =
          first + w < task.words ? simt::load_word<std::uint64_t>(task.row + 8 * (first + w)) : 0;
      ones += simt::ones_of(word[w]);
    }
    const simt::Scanned scanned = simt::scan(room.scan, ones);
    const std::uint64_t before = look_back(room.turn, task.tiles, tile, scanned.total);
    if (tile + 1 == tiles) sound = sound && before + scanned.total == task.k;
    std::uint64_t i = before + scanned.before;
    for (std::uint32_t w = 0; w < kWords; ++w) {
      for (; word[w] != 0 && i < task.k; word[w] &= word[w] - 1) {
        each(i++, 64 * (first + w) + simt::lowest_one(word[w]));
      }
    }
  }
}

}  // namespace winnow::kernels::cuda
