// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"

// Tasks that share the kernels of a step. The tiles of all are numbered through, in order.

namespace winnow::kernels::cuda {

/// The tasks of a launch: a single one, which travels with it.
template <class Task>
struct OneTask {
  Task task;

  struct Room {};
  WINNOW_DEVICE std::uint32_t tiles() const { return pass_tiles(select_of(task).count); }
  WINNOW_DEVICE std::uint32_t* tickets() const { return &select_of(task).control->stream_ticket; }
  WINNOW_DEVICE const Task& at(std::uint32_t) const { return task; }
  WINNOW_DEVICE const Task& fetch(Room&, std::uint32_t) const { return task; }
};

/// Or several, in device memory.
template <class Task>
struct ManyTasks {
  const Task* tasks;
  std::uint32_t size, tile_count;
  std::uint32_t* ticket;  ///< of the pass

  using Word = std::uint64_t;
  struct Room {  // in shared memory
    alignas(Task) std::byte task[sizeof(Task)];
  };
  static_assert(sizeof(Task) % sizeof(Word) == 0);

  WINNOW_DEVICE std::uint32_t tiles() const { return tile_count; }
  WINNOW_DEVICE std::uint32_t* tickets() const { return ticket; }
  /// The task that a tile is of.
  WINNOW_DEVICE const Task& at(std::uint32_t tile) const {
    std::uint32_t first = 0, end = size;  // among these is the last one that begins no later
    while (end - first > 1) {
      const std::uint32_t middle = first + (end - first) / 2;
      if (select_of(tasks[middle]).first_tile <= tile) {
        first = middle;
      } else {
        end = middle;
      }
    }
    return tasks[first];
  }
  /// A copy of it, for the block, which leaves the one before.
  WINNOW_DEVICE const Task& fetch(Room& room, std::uint32_t tile) const {
    const auto* const from = reinterpret_cast<const std::byte*>(&at(tile));
    simt::barrier();
    for (std::size_t i = simt::thread() * sizeof(Word); i < sizeof(Task);
         i += simt::kThreads * sizeof(Word)) {
      simt::store_word(room.task + i, simt::load_word<Word>(from + i));
    }
    simt::barrier();
    return *reinterpret_cast<const Task*>(room.task);
  }
};

using OneSelect = OneTask<SelectTask>;
using ManySelects = ManyTasks<SelectTask>;

}  // namespace winnow::kernels::cuda
