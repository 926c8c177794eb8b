// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// Elias-Fano coding of k ascending indices below count (Elias 1974, Fano 1971). With l low bits:
///   low part   k * l bits, the low l bits of each index, packed little-endian
///   high part  bit (index[i] >> l) + i is set, for each i; k + (count >> l) + 1 bits
/// Each part is padded with zero bits to a multiple of 8 bytes. l minimises the total and is, as
/// the size, a function of (count, k) alone.
struct EliasFanoShape {
  std::uint32_t low_bits;
  std::size_t low_bytes, high_bytes;
  std::size_t bytes() const { return low_bytes + high_bytes; }
};
EliasFanoShape eliasfano_shape(std::uint64_t count, std::uint64_t k);

/// Writes eliasfano_shape(count, index.size()).bytes() bytes to `out`, 8-byte aligned.
void eliasfano_encode(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index,
                      std::span<std::byte> out);

/// Reads index.size() indices back. Returns false, with index undefined, for any bytes that the
/// encoder would not have written: repeats, disorder, an index >= count, a wrong number of ones,
/// padding that is not zero.
bool eliasfano_decode(const Exec& exec, std::uint64_t count, std::span<const std::byte> in,
                      std::span<std::uint32_t> index);

}  // namespace winnow::kernels
