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
/// words that their codes are in, and scales. Small enough for a lane to have one of its own.
class StagedSlice {
 public:
  StagedSlice() = default;
  /// The slice of no list.
  WINNOW_DEVICE static StagedSlice none() {
    StagedSlice slice;
    slice.from_ = slice.size_ = slice.scales_ = slice.end_ = 0;
    slice.index_ = kNowhere;
    return slice;
  }
  /// At the first word of a stage.
  WINNOW_DEVICE StagedSlice(const DeviceTerm& term, std::uint32_t from, std::uint32_t size)
      : from_(from), size_(size), index_(0), scales_(size) {
    const DeviceValues& values = term.values;
    const std::uint64_t end = std::uint64_t{from} + size;
    scales_ += static_cast<std::uint32_t>((end * values.bits + 31) >> 5) -
               static_cast<std::uint32_t>(std::uint64_t{from} * values.bits >> 5);
    end_ = scales_;
    if (values.scales != nullptr && size > 0) end_ += scale_of(values, size - 1) + 1;
    if (end_ > kStageWords) *this = none();
  }

  /// Whether it is a list's and a stage has room for it.
  WINNOW_DEVICE bool is_staged() const { return index_ != kNowhere; }
  WINNOW_DEVICE std::uint32_t size() const { return size_; }
  WINNOW_DEVICE std::uint32_t words() const { return end_; }  ///< before it moves
  WINNOW_DEVICE void move(std::uint32_t words) {
    if (!is_staged()) return;
    index_ += words, scales_ += words, end_ += words;
  }
  /// The slice that a lane of this thread's warp has, all of whose threads ask for the same.
  WINNOW_DEVICE StagedSlice of_lane(unsigned lane) const {
    StagedSlice slice;
    slice.from_ = simt::shuffle(from_, lane);
    slice.size_ = simt::shuffle(size_, lane);
    slice.index_ = simt::shuffle(index_, lane);
    slice.scales_ = simt::shuffle(scales_, lane);
    slice.end_ = simt::shuffle(end_, lane);
    return slice;
  }

  /// A warp calls it, and need not wait yet.
  WINNOW_DEVICE void copy(const DeviceTerm& term, std::uint32_t* stage) const {
    const DeviceValues& values = term.values;
    const std::uint32_t codes = index_ + size_;
    copy_words(stage + index_, term.index + from_, size_);
    copy_words(stage + codes,
               values.codes + (std::uint64_t{from_} * values.bits >> 5) * sizeof *stage,
               scales_ - codes);
    if (end_ == scales_) return;
    copy_words(stage + scales_, values.scales + (from_ >> values.block_shift), end_ - scales_);
  }

  /// The index of entry i.
  WINNOW_DEVICE std::uint32_t index(const std::uint32_t* stage, std::uint32_t i) const {
    return stage[index_ + i];
  }
  template <class Coding>
  WINNOW_DEVICE float value(const DeviceValues& values, const std::uint32_t* stage,
                            std::uint32_t i) const {
    constexpr std::uint32_t kBits = Coding::kLine.bits;
    std::uint32_t first = 0;  // among the codes of the first word
    if constexpr (kBits > 0) first = from_ % (32 / kBits);
    float scale = 0;
    if constexpr (Coding::kLine.default_block != 0) {
      scale = std::bit_cast<float>(stage[scales_ + scale_of(values, i)]);
    }
    const auto* const codes = reinterpret_cast<const std::byte*>(stage + index_ + size_);
    return Coding::decode(code_at<Coding>(codes, first + i), scale);
  }

 private:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

  /// The scale of entry i, counted from the first one's.
  WINNOW_DEVICE std::uint32_t scale_of(const DeviceValues& values, std::uint32_t i) const {
    const std::uint32_t within = from_ & ((1U << values.block_shift) - 1);
    return (within + i) >> values.block_shift;
  }
  template <class Word>
  WINNOW_DEVICE static void copy_words(std::uint32_t* to, const Word* from, std::uint32_t count) {
    for (std::uint32_t i = simt::lane(); i < count; i += simt::kLanes) {
      simt::copy_word(to + i, reinterpret_cast<const std::byte*>(from) + i * sizeof *to);
    }
  }

  std::uint32_t from_, size_, index_, scales_, end_;
};

}  // namespace winnow::kernels::cuda
