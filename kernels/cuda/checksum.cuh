// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/error.hpp>

#include "kernels/cuda/aligned.hpp"
#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

struct ChecksumTask {
  const std::byte* bytes;
  std::uint64_t pairs;  ///< of words
  bool has_last;        ///< a word that is not of a pair
  std::uint64_t* sum;   ///< 0 at first; a pair that lies there is left out
};

/// Terms are integers modulo 2^64, so the order in which threads and blocks add theirs is all one.
struct Checksum {
  using Task = ChecksumTask;
  struct Shared {
    std::uint64_t sums[simt::kWarps];
  };

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    const auto* const left_out = reinterpret_cast<const std::byte*>(task.sum);
    std::uint64_t sum = 0;
    for (std::uint64_t p = simt::grid_thread(); p < task.pairs; p += simt::grid_threads()) {
      const std::byte* const at = task.bytes + 8 * p;
      if (at == left_out) continue;
      const auto pair = simt::load_word<std::uint64_t>(at);
      sum += (pair & 0xffffffffU) * (4 * p + 1) + (pair >> 32) * (4 * p + 3);
    }
    if (task.has_last && simt::grid_thread() == 0) {
      const std::uint64_t last = simt::load_word<std::uint32_t>(task.bytes + 8 * task.pairs);
      sum += last * (4 * task.pairs + 1);
    }
    sum = simt::warp_sum(sum);
    if (simt::lane() == 0) shared.sums[simt::thread() / simt::kLanes] = sum;
    simt::barrier();
    if (simt::thread() != 0) return;
    std::uint64_t all = 0;  // one word for all blocks: one addition each
    for (const std::uint64_t of_warp : shared.sums) all += of_warp;
    simt::atomic_add(task.sum, all);
  }
};

inline ChecksumTask make_checksum_task(std::span<const std::byte> bytes, std::uint64_t* sum) {
  WINNOW_EXPECTS(bytes.size() % 4 == 0, "checksum of bytes that are not whole 32-bit words");
  WINNOW_EXPECTS(sum != nullptr && reinterpret_cast<std::uintptr_t>(sum) % sizeof *sum == 0,
                 "checksum needs an 8-byte aligned place for the sum");
  expect_word_aligned(bytes);
  return {.bytes = bytes.data(),
          .pairs = bytes.size() / 8,
          .has_last = bytes.size() % 8 != 0,
          .sum = sum};
}

}  // namespace winnow::kernels::cuda
