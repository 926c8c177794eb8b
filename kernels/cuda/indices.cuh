// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/arithmetic/philox.hpp"
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

/// The input of an encoder.
struct IndexListTask {
  const std::uint32_t* index;
  std::uint64_t k, part_words;

  std::uint64_t words() const { return part_words; }
};

/// The index part of a message, by words.
struct Raw32Indices {
  using Task = IndexListTask;

  WINNOW_DEVICE static std::uint64_t word(const Task& task, std::uint64_t w) {
    const std::uint64_t high = 2 * w + 1 < task.k ? task.index[2 * w + 1] : 0;
    return task.index[2 * w] | high << 32;
  }
};

struct Raw32Decode {
  using Task = IndicesTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    bool sound = true;
    for (std::uint64_t i = simt::grid_thread(); i < 2 * task.words; i += simt::grid_threads()) {
      const auto index = at(task, i);
      if (i == task.k) {  // padding
        sound = sound && index == 0;
        continue;
      }
      sound = sound && index < task.count && (i == 0 || at(task, i - 1) < index);
      task.index[i] = index;
    }
    if (!sound) simt::atomic_or(task.refused, 1);
  }

 private:
  WINNOW_DEVICE static std::uint32_t at(const Task& task, std::uint64_t i) {
    return simt::load_word<std::uint32_t>(task.bytes + 4 * i);
  }
};

struct BitmapIndices {
  using Task = IndexListTask;

  WINNOW_DEVICE static std::uint64_t word(const Task& task, std::uint64_t w) {
    return word_of_ones(w, task.k,
                        [&task](std::uint64_t i) { return std::uint64_t{task.index[i]}; });
  }
};

struct BitmapDecode {
  using Task = IndicesTask;
  using Shared = OnesRoom;

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    bool sound = true;
    const bool complete =
        for_each_one(shared, task.ones, [&](std::uint64_t i, std::uint64_t place) {
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
  using Task = SeededTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for (std::uint64_t i = simt::grid_thread(); i < task.k; i += simt::grid_threads()) {
      task.index[i] = drawn_index(task.count, task.k, task.key, i);
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

inline IndicesTask make_raw32_decode_task(const DecodeJob& job) {
  return make_decode_task(job);
}

/// With ones_scratch(words) zeros of scratch.
inline IndicesTask make_bitmap_decode_task(const DecodeJob& job, std::byte* scratch) {
  IndicesTask task = make_decode_task(job);
  task.ones = make_ones_task(task.bytes, task.words, task.k, scratch);
  return task;
}

inline IndexListTask make_raw32_encode_task(std::span<const std::uint32_t> index) {
  return {.index = index.data(), .k = index.size(), .part_words = raw32_bytes(index.size()) / 8};
}

inline IndexListTask make_bitmap_encode_task(std::uint64_t count,
                                             std::span<const std::uint32_t> index) {
  return {.index = index.data(), .k = index.size(), .part_words = bitmap_bytes(count) / 8};
}

}  // namespace winnow::kernels::cuda
