// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/arithmetic/value.hpp"
#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/cuda/message_tasks.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::kernels::cuda {

struct CheckTask {
  const std::byte* coded;
  std::uint64_t scales, scale_words;   ///< words have 8 bytes
  std::uint64_t first_word, end_word;  ///< of the codes that are looked at
  std::uint64_t code_bits;             ///< of all codes, without padding
  std::uint32_t* refused;

  std::uint64_t words() const { return scale_words + (end_word - first_word); }
};

/// A word of scales or codes a thread at a time.
template <class Coding>
struct CheckValues {
  MessageTasks<CheckTask> messages;

  static constexpr bool kHasScales = Coding::kLine.default_block != 0;
  static constexpr bool kHasInvalid = Coding::kInvalidCode != values::kNone;

  WINNOW_DEVICE void run() const {
    const CheckTask& task = messages.of_block();
    bool sound = true;
    if constexpr (kHasScales) {
      for (std::uint64_t w = messages.thread(); w < task.scale_words; w += messages.threads()) {
        const auto word = simt::load_word<std::uint64_t>(task.coded + 8 * w);
        const bool is_padded = 2 * w + 1 == task.scales;
        const auto low = static_cast<std::uint32_t>(word);
        const auto high = static_cast<std::uint32_t>(word >> 32);
        sound = sound && values::is_scale<Coding>(low) &&
                (is_padded ? high == 0 : values::is_scale<Coding>(high));
      }
    }
    const std::byte* const codes = task.coded + 8 * task.scale_words;
    for (std::uint64_t w = task.first_word + messages.thread(); w < task.end_word;
         w += messages.threads()) {
      const auto word = simt::load_word<std::uint64_t>(codes + 8 * w);
      const std::uint64_t here = task.code_bits - 64 * w;
      sound = sound && (here >= 64 || word >> here == 0);
      if constexpr (kHasInvalid) sound = sound && !has_invalid(word);
    }
    if (!sound) simt::atomic_or(task.refused, 1);
  }

 private:
  WINNOW_DEVICE static bool has_invalid(std::uint64_t word) {
    constexpr std::uint32_t kBits = Coding::kLine.bits;
    constexpr std::uint64_t kOnes = ~std::uint64_t{0} / ((std::uint64_t{1} << kBits) - 1);
    // A code that is invalid becomes zero.
    const std::uint64_t zero =
        (word & kOnes * Coding::kInvalidMask) ^ (kOnes * Coding::kInvalidCode);
    return ((zero - kOnes) & ~zero & kOnes << (kBits - 1)) != 0;
  }
};

/// For a coding all of whose codes are sound, only the last word is checked, where it is padded.
inline CheckTask make_check_task(const ValueFormat& format, const CheckValuesJob& job) {
  const ValueLayout layout(format, job.k);
  const std::uint64_t words = (layout.bytes - layout.scale_bytes) / 8;
  const std::uint64_t code_bits = job.k * format.coding->bits;
  CheckTask task{.coded = job.coded.data(),
                 .scales = layout.scales,
                 .scale_words = layout.scale_bytes / 8,
                 .first_word = code_bits / 64,
                 .end_word = words,
                 .code_bits = code_bits,
                 .refused = job.refused};
  visit_coding(*format.coding, [&task](auto coding) {
    if (decltype(coding)::kInvalidCode != values::kNone) task.first_word = 0;
  });
  return task;
}

}  // namespace winnow::kernels::cuda
