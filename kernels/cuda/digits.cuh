// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

// Radix selection of the k-th largest magnitude, digit by digit from the top. Magnitudes have 31
// bits: 3 digits at most.

inline constexpr std::uint32_t kDigitBits = 11;
inline constexpr std::uint32_t kBins = 1U << kDigitBits;
inline constexpr std::uint32_t kLevels = 3;

/// How many magnitudes have which digit, in shared memory.
struct DigitRoom {
  std::uint32_t bins[kBins];
  simt::ScanRoom scan;
  std::uint32_t digit, above;
};

/// The digit of the number of rank `rank`, from 1 for the largest, and how many have a larger one.
struct Digit {
  std::uint32_t digit, above;
  bool found;  ///< there are as many numbers
};

/// Bits of the next digit where `shift` bits are left.
WINNOW_DEVICE std::uint32_t digit_bits(std::uint32_t shift) {
  return shift < kDigitBits ? shift : kDigitBits;
}

/// A barrier must follow before the bins are counted up.
WINNOW_DEVICE void clear_bins(DigitRoom& room) {
  for (std::uint32_t b = simt::thread(); b < kBins; b += simt::kThreads) room.bins[b] = 0;
}

/// All threads of the block call it, after a barrier.
WINNOW_DEVICE Digit find_digit(DigitRoom& room, std::uint32_t rank) {
  constexpr std::uint32_t kMine = kBins / simt::kThreads;
  const std::uint32_t top = kBins - simt::thread() * kMine;  // this thread's bins lie below it
  std::uint32_t sum = 0;
  for (std::uint32_t b = 1; b <= kMine; ++b) sum += room.bins[top - b];
  const simt::Scanned scanned = simt::scan(room.scan, sum);
  if (scanned.before < rank && rank <= scanned.before + sum) {
    auto above = static_cast<std::uint32_t>(scanned.before);
    std::uint32_t bin = top - 1;
    while (above + room.bins[bin] < rank) above += room.bins[bin--];
    room.digit = bin;
    room.above = above;
  }
  simt::barrier();
  return {room.digit, room.above, rank <= scanned.total};
}

}  // namespace winnow::kernels::cuda
