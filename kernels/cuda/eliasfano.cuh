// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/arithmetic/divisor.hpp"
#include "kernels/cuda/message_tasks.cuh"
#include "kernels/cuda/ones.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/index_coding.hpp"

// Encoding (finish_message.cuh): each thread makes whole words of the message, and finds the
// indices that have a bit in them: by a division in the low part, by a binary search in the high
// part, whose places ascend.
//
// Decoding: the number of ones before a word says which index its first one is, by look-back over
// tiles of words. A third to half of the bits are ones, so a thread has one word. Indices with
// other high bits than the one before ascend as they are read; those with the same, whose ones are
// next to each other, are compared in their low bits. Words are of 64 bits, as the parts are padded
// to.

namespace winnow::kernels::cuda {

struct EliasFanoTask {
  std::uint64_t count, k;
  std::uint32_t low_bits;
  std::uint64_t low_words, high_words;
  const std::byte* bytes;  ///< of the decoder: the low part, then the high part
  std::uint32_t* index;    ///< only read by the encoder
  std::uint32_t* refused;
  OnesTask ones;  ///< of the high part

  std::uint64_t words() const { return low_words + high_words; }
  WINNOW_DEVICE std::uint64_t low_word(std::uint64_t w) const {
    return simt::load_word<std::uint64_t>(bytes + 8 * w);
  }
  WINNOW_DEVICE std::uint64_t low_of_index(std::uint64_t i) const {
    if (low_bits == 0) return 0;
    const std::uint64_t bit = i * low_bits, w = bit / 64;
    const auto shift = static_cast<std::uint32_t>(bit % 64);
    std::uint64_t low = low_word(w) >> shift;
    if (shift + low_bits > 64) low |= low_word(w + 1) << (64 - shift);
    return low & ((std::uint64_t{1} << low_bits) - 1);
  }
  WINNOW_DEVICE bool is_one(std::uint64_t place) const {
    return (low_word(low_words + place / 64) >> place % 64 & 1) != 0;
  }
};

/// The index part of a message, by words.
struct EliasFanoIndices {
  EliasFanoTask task;
  Divisor low_divisor{1};  ///< low_bits

  std::uint64_t words() const { return task.words(); }
  WINNOW_DEVICE std::uint64_t word(std::uint64_t w) const {
    return w < task.low_words ? low_word(w) : high_word(w - task.low_words);
  }

 private:
  WINNOW_DEVICE std::uint64_t low_word(std::uint64_t w) const {
    const std::uint32_t l = task.low_bits, mask = (1U << l) - 1;
    const Divisor::Divided first = low_divisor.of(64 * w);
    std::uint64_t i = first.quotient;
    const std::uint32_t past = first.remainder;  // bits in the word before
    std::uint64_t word = (task.index[i] & mask) >> past;
    for (std::uint32_t filled = l - past; filled < 64 && ++i < task.k; filled += l) {
      word |= std::uint64_t{task.index[i] & mask} << filled;
    }
    return word;
  }

  WINNOW_DEVICE std::uint64_t high_word(std::uint64_t w) const {
    return word_of_ones(w, task.k,
                        [this](std::uint64_t i) { return (task.index[i] >> task.low_bits) + i; });
  }
};

struct EliasFanoDecode {
  MessageTasks<EliasFanoTask> messages;
  static constexpr std::uint32_t kWords = 1;
  using Shared = OnesRoom;

  WINNOW_DEVICE void run(Shared& shared) const {
    const EliasFanoTask& task = messages.of_block();
    bool sound = true;
    struct {
      std::uint64_t next = ~std::uint64_t{0}, place = 0, low = 0;
    } last;  // one of this thread, and the number behind it
    const bool complete =
        for_each_one<kWords>(shared, task.ones, [&](std::uint64_t i, std::uint64_t place) {
          const std::uint64_t low = task.low_of_index(i);
          const std::uint64_t position = (place - i) << task.low_bits | low;
          const bool known = i == last.next;
          const bool same_high =
              known ? place == last.place + 1 : place > 0 && task.is_one(place - 1);
          if (same_high) {
            sound = sound && (known ? last.low : task.low_of_index(i - 1)) < low;
          }
          sound = sound && position < task.count;
          task.index[i] = static_cast<std::uint32_t>(position);
          last = {i + 1, place, low};
        });
    // Ones in the padding of the high part name positions that are too large.
    const auto used = static_cast<std::uint32_t>(task.k * task.low_bits % 64);
    if (messages.thread() == 0 && used != 0) {
      sound = sound && task.low_word(task.low_words - 1) >> used == 0;
    }
    if (!complete || !sound) simt::atomic_or(task.refused, 1);
  }
};

inline EliasFanoTask make_eliasfano_task(std::uint64_t count, std::uint64_t k) {
  const EliasFanoShape shape = eliasfano_shape(count, k);
  return {.count = count,
          .k = k,
          .low_bits = shape.low_bits,
          .low_words = shape.low_bytes / 8,
          .high_words = shape.high_bytes / 8,
          .bytes = nullptr,
          .index = nullptr,
          .refused = nullptr,
          .ones = {}};
}

inline EliasFanoIndices make_eliasfano_indices(std::uint64_t count,
                                               std::span<const std::uint32_t> index) {
  EliasFanoTask task = make_eliasfano_task(count, index.size());
  task.index = const_cast<std::uint32_t*>(index.data());
  return {task, Divisor(task.low_bits)};
}

/// With ones_scratch(high_words) zeros of scratch.
inline EliasFanoTask make_eliasfano_decode_task(const DecodeJob& job, std::byte* scratch) {
  EliasFanoTask task = make_eliasfano_task(job.count, job.index.size());
  task.bytes = job.in.data();
  task.index = job.index.data();
  task.refused = job.refused;
  task.ones = make_ones_task(job.in.data() + 8 * task.low_words, task.high_words, task.k, scratch);
  return task;
}

}  // namespace winnow::kernels::cuda
