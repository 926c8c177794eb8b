// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/eliasfano_shape.hpp"
#include "kernels/arithmetic/philox.hpp"

namespace winnow::kernels {

// The index part of a message: k ascending indices below `count`, in one of three codings
// (docs/message_format.md). Each pads its bytes with zeros to a multiple of 8.
// kernels/finish_message.hpp writes them. In the fourth, all ranks draw the same indices, and none
// travels.

/// Bytes of 32 bits an index, and of one bit for each of `count` positions.
constexpr std::uint64_t raw32_bytes(std::uint64_t k) {
  return (k + 1) / 2 * 8;
}
constexpr std::uint64_t bitmap_bytes(std::uint64_t count) {
  return (count + 63) / 64 * 8;
}

/// An index part to read.
struct DecodeJob {
  std::uint64_t count = 0;           ///< at most 2^32
  std::span<const std::byte> in;     ///< as many bytes as the coding has, 8-byte aligned
  std::span<std::uint32_t> index;    ///< k elements
  std::uint32_t* refused = nullptr;  ///< in the memory of exec.place
  RandomKey key = {};                ///< of seeded_decode
};

/// Each reads the indices of several messages. Where a part holds bytes that its encoder would not
/// have written (disorder, repeats, an index >= count, another number of indices, padding that is
/// not zero), *refused becomes 1 and the indices are undefined; elsewhere it stays as it is.
/// On a device each takes scratch of exec.device_workspace. UsageError for wrong sizes.
void raw32_decode(const Exec& exec, std::span<const DecodeJob> jobs);
void eliasfano_decode(const Exec& exec, std::span<const DecodeJob> jobs);
void bitmap_decode(const Exec& exec, std::span<const DecodeJob> jobs);

/// Draws indices, one from each of k strata of equal size:
///   index[i] = begin + (random_word(key, i) * (end - begin) >> 32)
///   begin = floor(i * count / k),  end = floor((i + 1) * count / k)
/// So every index is drawn with probability k / count, but for rounding. Reads and refuses nothing:
/// `in` and `refused` may be empty.
void seeded_decode(const Exec& exec, std::span<const DecodeJob> jobs);

/// Bytes of scratch that decoders take at most for each job of this count, whatever its coding and
/// k: on a device 8 for each 8 KiB of 2 * count bits.
std::size_t decode_scratch(const Exec& exec, std::uint64_t count);

}  // namespace winnow::kernels
