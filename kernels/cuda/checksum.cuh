// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/error.hpp>

#include "kernels/cuda/aligned.hpp"
#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// Bytes that have a checksum.
struct SummedBytes {
  const std::byte* bytes;
  std::uint64_t pairs;  ///< of words
  bool has_last;        ///< a word that is not of a pair
};

/// The shared memory of a block that sums.
struct ChecksumRoom {
  std::uint64_t sums[simt::kWarps];
};

/// Of the block, the one with number `share` of `shares` that sum the same bytes: adds its part to
/// *total. Terms are integers modulo 2^64, so the order in which threads and blocks add theirs is
/// all one. A pair that lies at `total` is left out.
WINNOW_DEVICE void add_checksum(ChecksumRoom& shared, const SummedBytes& of, std::uint64_t share,
                                std::uint64_t shares, std::uint64_t* total) {
  const auto* const left_out = reinterpret_cast<const std::byte*>(total);
  const std::uint64_t first = share * simt::kThreads + simt::thread();
  std::uint64_t sum = 0;
  for (std::uint64_t p = first; p < of.pairs; p += shares * simt::kThreads) {
    const std::byte* const at = of.bytes + 8 * p;
    if (at == left_out) continue;
    const auto pair = simt::load_word<std::uint64_t>(at);
    sum += (pair & 0xffffffffU) * (4 * p + 1) + (pair >> 32) * (4 * p + 3);
  }
  if (of.has_last && first == 0) {
    const std::uint64_t last = simt::load_word<std::uint32_t>(of.bytes + 8 * of.pairs);
    sum += last * (4 * of.pairs + 1);
  }
  sum = simt::warp_sum(sum);
  if (simt::lane() == 0) shared.sums[simt::thread() / simt::kLanes] = sum;
  simt::barrier();
  if (simt::thread() != 0) return;
  std::uint64_t all = 0;  // one word for all blocks: one addition each
  for (const std::uint64_t of_warp : shared.sums) all += of_warp;
  simt::atomic_add(total, all);
}

struct ChecksumTask {
  SummedBytes of;
  std::uint64_t* sum;  ///< 0 at first
};

struct Checksum {
  using Task = ChecksumTask;
  using Shared = ChecksumRoom;

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    add_checksum(shared, task.of, simt::block(), simt::blocks(), task.sum);
  }
};

struct ChecksumsTask {
  /// As many as arguments of a kernel have room for on every device.
  static constexpr unsigned kMost = 128;

  SummedBytes of[kMost];
  unsigned count;
  std::uint64_t* sums;  ///< 0 at first
};

/// As many blocks for each message: block b is of message b % count.
struct Checksums {
  using Task = ChecksumsTask;
  using Shared = ChecksumRoom;

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    const unsigned m = simt::block() % task.count;
    add_checksum(shared, task.of[m], simt::block() / task.count, simt::blocks() / task.count,
                 task.sums + m);
  }
};

inline SummedBytes make_summed_bytes(std::span<const std::byte> bytes) {
  WINNOW_EXPECTS(bytes.size() % 4 == 0, "checksum of bytes that are not whole 32-bit words");
  expect_word_aligned(bytes);
  return {.bytes = bytes.data(), .pairs = bytes.size() / 8, .has_last = bytes.size() % 8 != 0};
}

inline void expect_sum_place(const std::uint64_t* sum) {
  WINNOW_EXPECTS(sum != nullptr && reinterpret_cast<std::uintptr_t>(sum) % sizeof *sum == 0,
                 "checksum needs an 8-byte aligned place for the sum");
}

inline ChecksumTask make_checksum_task(std::span<const std::byte> bytes, std::uint64_t* sum) {
  expect_sum_place(sum);
  return {.of = make_summed_bytes(bytes), .sum = sum};
}

/// Calls launch(task, pairs) for messages that follow each other, as many at a time as there is
/// room for; none has more pairs.
template <class Launch>
void for_each_checksums_task(std::span<const std::span<const std::byte>> messages,
                             std::uint64_t* sums, const Launch& launch) {
  if (!messages.empty()) expect_sum_place(sums);
  ChecksumsTask task = {};
  while (!messages.empty()) {
    task.count = static_cast<unsigned>(std::min<std::size_t>(messages.size(), task.kMost));
    task.sums = sums;
    std::uint64_t most_pairs = 0;
    for (unsigned m = 0; m < task.count; ++m) {
      task.of[m] = make_summed_bytes(messages[m]);
      most_pairs = std::max(most_pairs, task.of[m].pairs);
    }
    launch(task, most_pairs);
    messages = messages.subspan(task.count);
    sums += task.count;
  }
}

}  // namespace winnow::kernels::cuda
