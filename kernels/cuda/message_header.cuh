// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/finish_message.hpp"
#include "kernels/message_header.hpp"

namespace winnow::kernels::cuda {

// Headers are written and compared by words of 64 bits.
inline constexpr unsigned kHeaderWords = kHeaderBytes / sizeof(std::uint64_t);
struct HeaderWords {
  std::uint64_t word[kHeaderWords];
};

/// A HeaderLayout in words.
struct HeaderFields {
  unsigned flags_word;
  std::uint64_t poison;  ///< of that word
  unsigned checksum_word;
  unsigned call_word;
};

inline HeaderFields fields_of(const HeaderLayout& layout) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  return {.flags_word = static_cast<unsigned>(layout.flags_at / kWord),
          .poison = std::uint64_t{layout.poison} << 8 * (layout.flags_at % kWord),
          .checksum_word = static_cast<unsigned>(layout.checksum_at / kWord),
          .call_word = static_cast<unsigned>(layout.call_at / kWord)};
}

/// PoisonSources.
struct PoisonWords {
  const std::uint32_t* words;
  std::uint64_t word_count;
  const SelectResult* results;
  std::uint64_t result_count;

  /// Whether a source says so that this thread of the block has looked at.
  WINNOW_DEVICE bool any_of_thread() const {
    bool poisoned = false;
    for (std::uint64_t i = simt::thread(); i < word_count; i += simt::kThreads) {
      poisoned = poisoned || words[i] != 0;
    }
    for (std::uint64_t i = simt::thread(); i < result_count; i += simt::kThreads) {
      poisoned = poisoned || !results[i].finite || results[i].overflow;
    }
    return poisoned;
  }
};

inline PoisonWords make_poison_words(const PoisonSources& sources) {
  return {.words = sources.words.data(),
          .word_count = sources.words.size(),
          .results = sources.results.data(),
          .result_count = sources.results.size()};
}

struct ClaimedKTask {
  /// As many as arguments of a kernel have room for on every device.
  static constexpr unsigned kMost = 256;

  const std::byte* words[kMost];  ///< that say k
  unsigned count;
  std::uint64_t* k;
};

/// A thread copies a message's word.
struct ClaimedK {
  ClaimedKTask task;

  WINNOW_DEVICE void run() const {
    for (std::uint64_t m = simt::grid_thread(); m < task.count; m += simt::grid_threads()) {
      task.k[m] = simt::load_word<std::uint64_t>(task.words[m]);
    }
  }
};

struct HeaderToCheck {
  const std::byte* message;
  const std::uint64_t* sum;
  const std::uint32_t* refused[2];
  HeaderWords expected;
  std::uint32_t number;
};

struct CheckHeadersTask {
  /// As many as arguments of a kernel have room for on every device.
  static constexpr unsigned kMost = 32;

  HeaderToCheck messages[kMost];
  unsigned count;
  HeaderFields fields;
  std::uint32_t* status;  ///< of each message
  CallStatus* call;       ///< where not null, it is told and no status is written
};

/// A warp checks a message: each word of the header, and each part, is a lane's.
struct CheckHeaders {
  CheckHeadersTask task;

  WINNOW_DEVICE void run() const {
    const unsigned lane = simt::lane();
    for (std::uint64_t m = simt::grid_thread() / simt::kLanes; m < task.count;
         m += simt::grid_threads() / simt::kLanes) {
      const HeaderToCheck& of = task.messages[m];
      bool unsound = false, poisoned = false;
      if (lane < kHeaderWords) {
        const auto word = simt::load_word<std::uint64_t>(of.message + sizeof(std::uint64_t) * lane);
        if (lane == task.fields.checksum_word) {
          // The checksum counts as zero: what its two words add to the sum is taken off again.
          unsound = word != *of.sum - sum_of_pair(lane, word);
        } else {
          const std::uint64_t poison = lane == task.fields.flags_word ? task.fields.poison : 0;
          const bool names_call = task.call != nullptr && lane == task.fields.call_word;
          const std::uint64_t expected = names_call ? task.call->call : of.expected.word[lane];
          unsound = ((word ^ expected) & ~poison) != 0;
          poisoned = (word & poison) != 0;
        }
      } else if (lane < kHeaderWords + 2) {
        const std::uint32_t* const refused = of.refused[lane - kHeaderWords];
        unsound = refused != nullptr && *refused != 0;
      }
      const std::uint32_t any_poisoned = simt::ballot(poisoned),
                          any_unsound = simt::ballot(unsound);
      if (lane != 0) continue;
      if (task.call == nullptr) {
        task.status[m] = (any_poisoned != 0 ? kPoisoned : 0) | (any_unsound != 0 ? kUnsound : 0);
        continue;
      }
      if ((any_poisoned | any_unsound) != 0) simt::atomic_or(&task.call->spoiled, 1);
      if (any_unsound != 0) simt::atomic_max(&task.call->unsound, ~of.number);
    }
  }
};

/// Calls launch(task) for messages that follow each other, as many at a time as there is room for.
template <class Launch>
void for_each_check_task(std::span<const MessageCheck> messages, const HeaderLayout& layout,
                         std::uint32_t* status, CallStatus* call, const Launch& launch) {
  CheckHeadersTask task = {};
  task.fields = fields_of(layout);
  task.call = call;
  while (!messages.empty()) {
    task.count = static_cast<unsigned>(std::min<std::size_t>(messages.size(), task.kMost));
    task.status = status;
    for (unsigned m = 0; m < task.count; ++m) {
      const MessageCheck& message = messages[m];
      task.messages[m] = {.message = message.bytes.data(),
                          .sum = message.sum,
                          .refused = {message.refused[0], message.refused[1]},
                          .expected = std::bit_cast<HeaderWords>(message.expected),
                          .number = message.number};
    }
    launch(task);
    messages = messages.subspan(task.count);
    if (call == nullptr) status += task.count;
  }
}

}  // namespace winnow::kernels::cuda
