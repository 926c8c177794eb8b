// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <winnow/error.hpp>

#include "kernels/cuda/aligned.hpp"
#include "kernels/cuda/indices.hpp"
#include "kernels/cuda/ones.cuh"
#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// What a decoder is told.
struct IndicesTask {
  std::uint64_t count, k, words;
  const std::byte* bytes;
  std::uint32_t* index;
  std::uint32_t* refused;
  std::uint32_t* ticket;
  std::uint64_t* tiles;  ///< words of look_back
};

/// What an encoder is told.
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
    const OnesTask ones{task.bytes, task.words, task.k, task.ticket, task.tiles};
    const bool complete = for_each_one(shared, ones, [&](std::uint64_t i, std::uint64_t place) {
      sound = sound && place < task.count;
      task.index[i] = static_cast<std::uint32_t>(place);
    });
    if (!complete || !sound) simt::atomic_or(task.refused, 1);
  }
};

inline IndicesTask make_indices_task(std::uint64_t count, std::uint64_t k, std::uint64_t words) {
  return {.count = count,
          .k = k,
          .words = words,
          .bytes = nullptr,
          .index = nullptr,
          .refused = nullptr,
          .ticket = nullptr,
          .tiles = nullptr};
}

/// Words of raw32 for k indices, and of a bitmap of `count` positions.
constexpr std::uint64_t raw32_words(std::uint64_t k) {
  return (k + 1) / 2;
}
constexpr std::uint64_t bitmap_words(std::uint64_t count) {
  return (count + 63) / 64;
}

inline void expect_message(std::span<const std::byte> message, std::uint64_t words) {
  WINNOW_EXPECTS(message.size() == 8 * words, "these indices take " + std::to_string(8 * words) +
                                                  " bytes, not " + std::to_string(message.size()));
  expect_word_aligned(message);
}

inline IndicesTask make_decode_task(const IndicesTask& shape, const DeviceDecodeJob& job) {
  expect_message(job.in, shape.words);
  WINNOW_EXPECTS(job.refused != nullptr, "a decoder of indices needs a word for refused");
  IndicesTask task = shape;
  task.bytes = job.in.data();
  task.index = job.index.data();
  task.refused = job.refused;
  return task;
}

inline IndexListTask make_raw32_encode_task(std::span<const std::uint32_t> index) {
  return {.index = index.data(), .k = index.size(), .part_words = raw32_words(index.size())};
}

inline IndicesTask make_raw32_decode_task(const DeviceDecodeJob& job) {
  const std::uint64_t k = job.index.size();
  return make_decode_task(make_indices_task(job.count, k, raw32_words(k)), job);
}

inline IndexListTask make_bitmap_encode_task(std::uint64_t count,
                                             std::span<const std::uint32_t> index) {
  return {.index = index.data(), .k = index.size(), .part_words = bitmap_words(count)};
}

/// The ticket, and a word for each tile.
inline std::size_t bitmap_scratch_bytes(std::uint64_t count) {
  return 256 + ones_tiles(bitmap_words(count)) * sizeof(std::uint64_t);
}

inline IndicesTask make_bitmap_decode_task(const DeviceDecodeJob& job) {
  IndicesTask task = make_decode_task(
      make_indices_task(job.count, job.index.size(), bitmap_words(job.count)), job);
  WINNOW_EXPECTS(job.scratch.size() >= bitmap_scratch_bytes(job.count) &&
                     reinterpret_cast<std::uintptr_t>(job.scratch.data()) % 256 == 0,
                 "bitmap_decode needs bitmap_decode_scratch bytes, 256-byte aligned");
  task.ticket = reinterpret_cast<std::uint32_t*>(job.scratch.data());
  task.tiles = reinterpret_cast<std::uint64_t*>(job.scratch.data() + 256);
  return task;
}

}  // namespace winnow::kernels::cuda
