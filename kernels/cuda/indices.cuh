// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/arithmetic/philox.hpp"
#include "kernels/cuda/message_tasks.cuh"
#include "kernels/cuda/ones.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/index_coding.hpp"

namespace winnow::kernels::cuda {

/// The input of a decoder.
struct IndicesTask {
  std::uint64_t count, k, words;
  const std::byte* bytes;
  std::uint32_t* index;
  std::uint32_t* refused;
  OnesTask ones;  ///< of a bitmap
};

/// The index part of a message, by words.
struct Raw32Indices {
  const std::uint32_t* index;
  std::uint64_t k;

  std::uint64_t words() const { return raw32_bytes(k) / 8; }
  WINNOW_DEVICE std::uint64_t word(std::uint64_t w) const {
    const std::uint64_t high = 2 * w + 1 < k ? index[2 * w + 1] : 0;
    return index[2 * w] | high << 32;
  }
};

struct Raw32Decode {
  MessageTasks<IndicesTask> messages;

  WINNOW_DEVICE void run() const {
    const IndicesTask& task = messages.of_block();
    const auto at = [&task](std::uint64_t i) {
      return simt::load_word<std::uint32_t>(task.bytes + 4 * i);
    };
    bool sound = true;
    for (std::uint64_t i = messages.thread(); i < 2 * task.words; i += messages.threads()) {
      const auto index = at(i);
      if (i == task.k) {  // padding
        sound = sound && index == 0;
        continue;
      }
      sound = sound && index < task.count && (i == 0 || at(i - 1) < index);
      task.index[i] = index;
    }
    if (!sound) simt::atomic_or(task.refused, 1);
  }
};

struct BitmapIndices {
  const std::uint32_t* index;
  std::uint64_t k, count;

  std::uint64_t words() const { return bitmap_bytes(count) / 8; }
  WINNOW_DEVICE std::uint64_t word(std::uint64_t w) const {
    return word_of_ones(w, k, [this](std::uint64_t i) { return std::uint64_t{index[i]}; });
  }
};

struct BitmapDecode {
  MessageTasks<IndicesTask> messages;
  static constexpr std::uint32_t kWords = 4;
  using Shared = OnesRoom;

  WINNOW_DEVICE void run(Shared& shared) const {
    const IndicesTask& task = messages.of_block();
    bool sound = true;
    const bool complete =
        for_each_one<kWords>(shared, task.ones, [&](std::uint64_t i, std::uint64_t place) {
          sound = sound && place < task.count;
          task.index[i] = static_cast<std::uint32_t>(place);
        });
    if (!complete || !sound) simt::atomic_or(task.refused, 1);
  }
};

struct SeededTask {
  std::uint64_t count, k;
  std::uint32_t* index;
  RandomKey key;
};

struct SeededDecode {
  MessageTasks<SeededTask> messages;

  WINNOW_DEVICE void run() const {
    const auto& [count, k, index, key] = messages.of_block();
    for (std::uint64_t i = messages.thread(); i < k; i += messages.threads()) {
      index[i] = drawn_index(count, k, key, i);
    }
  }
};

inline IndicesTask make_decode_task(const DecodeJob& job) {
  return {.count = job.count,
          .k = job.index.size(),
          .words = job.in.size() / 8,
          .bytes = job.in.data(),
          .index = job.index.data(),
          .refused = job.refused,
          .ones = {}};
}

/// With ones_scratch(words) zeros of scratch.
inline IndicesTask make_bitmap_decode_task(const DecodeJob& job, std::byte* scratch) {
  IndicesTask task = make_decode_task(job);
  task.ones = make_ones_task(task.bytes, task.words, task.k, scratch);
  return task;
}

}  // namespace winnow::kernels::cuda
