// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/message_header.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/seal.hpp"

namespace winnow::kernels::cuda {

/// The index part of a message that carries every position.
struct NoIndices {
  static constexpr std::uint64_t words() { return 0; }
  WINNOW_DEVICE static std::uint64_t word(std::uint64_t) { return 0; }
};

template <class Indices>
struct SealTask {
  SummedBytes message;
  HeaderWords header;
  HeaderFields fields;
  PoisonWords poison;
  CallStatus* status;  ///< may be null
  Indices indices;
  std::uint64_t index_words;
  std::uint64_t padding;  ///< bits at the end of the last pair

  WINNOW_DEVICE std::byte* at(std::uint64_t word) const {
    return const_cast<std::byte*>(message.bytes) + sizeof word * word;
  }
};

/// Each thread makes or reads whole words of the message, and adds what they add to the checksum,
/// which is 0 at first. Padding is of values. indices.word(w) is word w of the index part.
template <class Indices>
struct Seal {
  SealTask<Indices> task;
  using Shared = ChecksumRoom;

  WINNOW_DEVICE void run(Shared& shared) const {
    std::uint64_t sum = 0;
    if (simt::block() == 0) sum = put_header();
    for (std::uint64_t w = kHeaderWords + simt::grid_thread(); w < task.message.pairs;
         w += simt::grid_threads()) {
      const std::uint64_t i = w - kHeaderWords;
      std::uint64_t word = 0;
      if (i < task.index_words) {
        word = task.indices.word(i);
        simt::store_word(task.at(w), word);
      } else {
        word = simt::load_word<std::uint64_t>(task.at(w));
        if (w + 1 == task.message.pairs && task.padding > 0) {
          word &= ~std::uint64_t{0} >> task.padding;
          simt::store_word(task.at(w), word);
        }
      }
      sum += sum_of_pair(w, word);
    }
    if (simt::grid_thread() == 0) sum += sum_of_last(task.message);
    add_of_block(shared, sum, reinterpret_cast<std::uint64_t*>(task.at(task.fields.checksum_word)));
  }

 private:
  /// By one block. What the words of this thread add.
  WINNOW_DEVICE std::uint64_t put_header() const {
    CallStatus* const status = task.status;
    const bool was_spoiled = status != nullptr && status->spoiled != 0;
    const bool poisoned = simt::barrier_or(was_spoiled || task.poison.any_of_thread());
    const unsigned w = simt::thread();
    if (w == 0 && poisoned && status != nullptr) status->spoiled = 1;
    if (w >= kHeaderWords || w == task.fields.checksum_word) return 0;
    const bool names_call = w == task.fields.call_word && status != nullptr;
    std::uint64_t word = names_call ? status->call : task.header.word[w];
    if (poisoned && w == task.fields.flags_word) word |= task.fields.poison;
    simt::store_word(task.at(w), word);
    return sum_of_pair(w, word);
  }
};

template <class Indices>
SealTask<Indices> make_seal_task(const SealJob& job, const Indices& indices) {
  return {.message = make_summed_bytes(job.message),
          .header = std::bit_cast<HeaderWords>(job.header),
          .fields = fields_of(job.layout),
          .poison = make_poison_words(job.poison),
          .status = job.status,
          .indices = indices,
          .index_words = indices.words(),
          .padding = 8 * job.padding};
}

}  // namespace winnow::kernels::cuda
