// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// Writes the checksum of each message: a position-weighted sum of its little-endian 32-bit words
///   sums[m] = sum of w[i] * (2 * i + 1)  modulo 2^64
/// Every change of a single word, and every exchange of two unequal words, changes it; any order of
/// additions gives the same value. A message is 8-byte aligned and has a multiple of 4 bytes; sums
/// are 0 before. On a device up to 128 messages share a launch.
void checksums(const Exec& exec, std::span<const std::span<const std::byte>> messages,
               std::uint64_t* sums);

}  // namespace winnow::kernels
