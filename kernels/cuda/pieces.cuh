// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

/// A task that does one element at a time: run(i). Others do a vector of them: run(first, here).
template <class Task>
concept ByElement = requires(const Task& task, std::uint64_t i) { task.run(i); };

/// The same work on several pieces of memory, which travel with the launch. A task has a count of
/// elements. The tiles of all pieces are numbered through, and a block takes every
/// simt::blocks()-th: an element or a vector a thread.
template <class Task, unsigned kMost>
struct Pieces {
  static constexpr std::uint32_t kTile = simt::kThreads * (ByElement<Task> ? 1 : 4);  // elements

  Task task[kMost];
  std::uint32_t end[kMost];  // of the tiles of each piece
  unsigned count;

  static Pieces of(std::span<const Task> tasks) {
    Pieces pieces = {};
    std::uint32_t tiles = 0;
    for (const Task& task : tasks) {
      tiles += static_cast<std::uint32_t>((task.count + kTile - 1) / kTile);
      pieces.task[pieces.count] = task;
      pieces.end[pieces.count++] = tiles;
    }
    return pieces;
  }
  constexpr std::uint32_t tiles() const { return end[count - 1]; }  // on the host, too

  WINNOW_DEVICE void run() const {
    for (std::uint32_t tile = simt::block(); tile < tiles(); tile += simt::blocks()) {
      const unsigned p = piece_of(tile);
      const std::uint32_t begin = p == 0 ? 0 : end[p - 1];
      const std::uint64_t tile_begin = std::uint64_t{tile - begin} * kTile;
      if constexpr (ByElement<Task>) {
        const std::uint64_t i = tile_begin + simt::thread();
        if (i < task[p].count) task[p].run(i);
      } else {
        const std::uint64_t first = tile_begin + 4 * simt::thread();
        const unsigned here = elements_below(task[p].count, first);
        if (here != 0) task[p].run(first, here);
      }
    }
  }

 private:
  /// The first piece that ends behind a tile.
  WINNOW_DEVICE unsigned piece_of(std::uint32_t tile) const {
    unsigned first = 0, last = kMost == 1 ? 0 : count - 1;
    while (first < last) {
      const unsigned middle = (first + last) / 2;
      if (end[middle] <= tile) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }
};

}  // namespace winnow::kernels::cuda
