// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::comm {

/// CRC-64/NVME. In data of any length every change of one or two bits, or of bits within 64 in a
/// row, changes it, and every exchange of two unequal words of 8 bytes.
std::uint64_t crc64(std::span<const std::byte> bytes);

}  // namespace winnow::comm
