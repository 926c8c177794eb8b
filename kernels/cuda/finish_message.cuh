// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/message_header.cuh"
#include "kernels/cuda/message_tasks.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/finish_message.hpp"

namespace winnow::kernels::cuda {

/// The index part of a message that carries every position.
struct NoIndices {
  static constexpr std::uint64_t words() { return 0; }
  WINNOW_DEVICE static std::uint64_t word(std::uint64_t) { return 0; }
};

template <class Indices>
struct FinishTask {
  SummedBytes message;
  HeaderWords header;
  HeaderFields fields;
  PoisonWords poison;
  CallStatus* status;  ///< may be null
  Indices indices;
  std::uint64_t index_words;
  std::uint64_t padding;  ///< bits at the end of the last pair

  WINNOW_DEVICE constexpr std::byte* at(std::uint64_t word) const {
    return const_cast<std::byte*>(message.bytes) + sizeof word * word;
  }
};

/// Each thread makes or reads whole words of the message, and adds what they add to the checksum,
/// which is 0 at first. Padding is of values. indices.word(w) is word w of the index part.
template <class Indices, unsigned kMost>
struct FinishMessage {
  MessageTasks<FinishTask<Indices>, kMost> messages;
  using Shared = ChecksumRoom;

  WINNOW_DEVICE void run(Shared& shared) const {
    const FinishTask<Indices>& task = messages.of_block();
    std::uint64_t sum = 0;
    if (messages.is_first_block()) sum = put_header(task);
    for (std::uint64_t w = kHeaderWords + messages.thread(); w < task.message.pairs;
         w += messages.threads()) {
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
    if (messages.thread() == 0) sum += sum_of_last(task.message);
    add_of_block(shared, sum, reinterpret_cast<std::uint64_t*>(task.at(task.fields.checksum_word)));
  }

 private:
  /// One block calls it. The contribution of this thread's words.
  WINNOW_DEVICE static std::uint64_t put_header(const FinishTask<Indices>& task) {
    CallStatus* const status = task.status;
    const bool was_spoiled = status != nullptr && simt::published(&status->spoiled) != 0;
    const bool poisoned = simt::barrier_or(was_spoiled || task.poison.any_of_thread());
    const unsigned w = simt::thread();
    if (w == 0 && poisoned && status != nullptr) simt::publish(&status->spoiled, 1U);
    if (w >= kHeaderWords || w == task.fields.checksum_word) return 0;
    const bool names_call = w == task.fields.call_word && status != nullptr;
    std::uint64_t word = names_call ? status->call : task.header.word[w];
    if (poisoned && w == task.fields.flags_word) word |= task.fields.poison;
    simt::store_word(task.at(w), word);
    return sum_of_pair(w, word);
  }
};

/// Before messages that share a launch are finished: their checksums become 0.
struct ClearChecksums {
  static constexpr unsigned kMost = 256;

  std::uint64_t* word[kMost];
  unsigned count;

  WINNOW_DEVICE void run() const {
    if (simt::thread() < count) *word[simt::thread()] = 0;
  }
};
static_assert(ClearChecksums::kMost <= simt::kThreads);

template <class Indices>
FinishTask<Indices> make_finish_task(const FinishJob& job, const Indices& indices) {
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
