// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/arithmetic/checksum.hpp"
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

// Terms are integers modulo 2^64, so the order in which threads and blocks add theirs is all one.

/// The share of a word that is not of a pair.
WINNOW_DEVICE std::uint64_t sum_of_last(const SummedBytes& of) {
  if (!of.has_last) return 0;
  return sum_of_pair(of.pairs, simt::load_word<std::uint32_t>(of.bytes + 8 * of.pairs));
}

/// For the block: adds the sums of its threads to *total.
WINNOW_DEVICE void add_of_block(ChecksumRoom& shared, std::uint64_t sum, std::uint64_t* total) {
  sum = simt::warp_sum(sum);
  if (simt::lane() == 0) shared.sums[simt::thread() / simt::kLanes] = sum;
  simt::barrier();
  if (simt::thread() != 0) return;
  std::uint64_t all = 0;  // one word for all blocks: one addition each
  for (const std::uint64_t of_warp : shared.sums) all += of_warp;
  simt::atomic_add(total, all);
}

struct ChecksumsTask {
  /// As many as arguments of a kernel have room for on every device.
  static constexpr unsigned kMost = 128;

  SummedBytes of[kMost];
  unsigned count;
  std::uint64_t* sums;  ///< 0 at first
};

/// As many blocks for each message: block b is of message b % count.
struct Checksums {
  ChecksumsTask task;
  using Shared = ChecksumRoom;

  WINNOW_DEVICE void run(Shared& shared) const {
    const unsigned m = simt::block() % task.count;
    const SummedBytes& of = task.of[m];
    const std::uint64_t shares = simt::blocks() / task.count;
    const std::uint64_t first =
        std::uint64_t{simt::block() / task.count} * simt::kThreads + simt::thread();
    std::uint64_t sum = first == 0 ? sum_of_last(of) : 0;
    for (std::uint64_t p = first; p < of.pairs; p += shares * simt::kThreads) {
      sum += sum_of_pair(p, simt::load_word<std::uint64_t>(of.bytes + 8 * p));
    }
    add_of_block(shared, sum, task.sums + m);
  }
};

inline SummedBytes make_summed_bytes(std::span<const std::byte> bytes) {
  return {.bytes = bytes.data(), .pairs = bytes.size() / 8, .has_last = bytes.size() % 8 != 0};
}

/// Calls launch(task, pairs) for messages that follow each other, as many at a time as there is
/// room for; none has more pairs.
template <class Launch>
void for_each_checksums_task(std::span<const std::span<const std::byte>> messages,
                             std::uint64_t* sums, const Launch& launch) {
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
