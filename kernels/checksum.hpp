// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// Position-weighted sum of the little-endian 32-bit words w[0..n) of `bytes` (a multiple of 4):
///   sum of w[i] * (2 * i + 1)  modulo 2^64
/// Every change of a single word, and every exchange of two unequal words, changes it; terms are
/// independent, so any order and any number of threads gives the same value.
std::uint64_t checksum(const Exec& exec, std::span<const std::byte> bytes);

}  // namespace winnow::kernels
