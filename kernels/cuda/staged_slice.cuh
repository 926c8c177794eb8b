// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/terms.hpp"
#include "kernels/cuda/values.cuh"

namespace winnow::kernels::cuda {

/// A stage is shared memory for slices of lists: what a block is about to add, copied there all at
/// once, so that it waits once and not for each list.
inline constexpr std::uint32_t kStageWords = 2048;

/// Entries of a list that follow each other, and the words of a stage where they lie: indices, the
/// words that their codes are in, and scales.
class StagedSlice {
 public:
  WINNOW_DEVICE StagedSlice(const DeviceTerm& term, std::uint64_t from, std::uint32_t size,
                            std::uint32_t at)
      : term_(term), from_(from), size_(size), index_(at), codes_(at + size) {
    const DeviceValues& values = term.values;
    scales_ = codes_ + static_cast<std::uint32_t>((((from + size) * values.bits + 31) >> 5) -
                                                  (from * values.bits >> 5));
    end_ = scales_;
    if (values.scales != nullptr && size > 0) end_ += scale_of(size - 1) + 1;
  }

  WINNOW_DEVICE std::uint32_t size() const { return size_; }
  WINNOW_DEVICE std::uint32_t end() const { return end_; }  ///< the word behind it

  /// By a warp, which need not wait yet.
  WINNOW_DEVICE void copy(std::uint32_t* stage) const {
    const DeviceValues& values = term_.values;
    copy_words(stage + index_, term_.index + from_, size_);
    copy_words(stage + codes_, values.codes + (from_ * values.bits >> 5) * sizeof *stage,
               scales_ - codes_);
    if (end_ == scales_) return;
    copy_words(stage + scales_, values.scales + (from_ >> values.block_shift), end_ - scales_);
  }

  /// Of entry i.
  WINNOW_DEVICE std::uint32_t index(const std::uint32_t* stage, std::uint32_t i) const {
    return stage[index_ + i];
  }
  template <class Coding>
  WINNOW_DEVICE float value(const std::uint32_t* stage, std::uint32_t i) const {
    constexpr std::uint32_t kBits = Coding::kLine.bits;
    std::uint32_t first = 0;  // among the codes of the first word
    if constexpr (kBits > 0) first = static_cast<std::uint32_t>(from_) % (32 / kBits);
    float scale = 0;
    if constexpr (Coding::kLine.default_block != 0) {
      scale = std::bit_cast<float>(stage[scales_ + scale_of(i)]);
    }
    const auto* const codes = reinterpret_cast<const std::byte*>(stage + codes_);
    return Coding::decode(code_at<Coding>(codes, first + i), scale);
  }

 private:
  /// The scale of entry i, counted from that of the first.
  WINNOW_DEVICE std::uint32_t scale_of(std::uint32_t i) const {
    const std::uint32_t shift = term_.values.block_shift;
    return static_cast<std::uint32_t>(((from_ + i) >> shift) - (from_ >> shift));
  }
  template <class Word>
  WINNOW_DEVICE static void copy_words(std::uint32_t* to, const Word* from, std::uint32_t count) {
    for (std::uint32_t i = simt::lane(); i < count; i += simt::kLanes) {
      simt::copy_word(to + i, reinterpret_cast<const std::byte*>(from) + i * sizeof *to);
    }
  }

  const DeviceTerm& term_;
  std::uint64_t from_;
  std::uint32_t size_, index_, codes_, scales_, end_;
};

}  // namespace winnow::kernels::cuda
