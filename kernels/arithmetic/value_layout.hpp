// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/value_coding.hpp"

namespace winnow::kernels {

/// The places of the scales and the codes of k values in their bytes.
struct ValueLayout {
  std::uint64_t scales;       ///< how many; they start at byte 0
  std::uint64_t scale_bytes;  ///< with padding: where the codes start
  std::uint64_t code_bytes;   ///< without padding
  std::uint64_t bytes;        ///< with padding

  ValueLayout(const ValueFormat& format, std::uint64_t k)
      : scales(format.block == 0 ? 0 : (k + format.block - 1) / format.block),
        scale_bytes((scales * sizeof(float) + 7) / 8 * 8),
        code_bytes((k * format.coding->bits + 7) / 8),
        bytes(scale_bytes + (code_bytes + 7) / 8 * 8) {}
};

/// Code i of `bits` bits, packed little-endian; what is put must have been zero. One of 0 bits is
/// nowhere, and 0.
inline void put_code(std::byte* codes, std::uint32_t bits, std::uint64_t i, std::uint32_t code) {
  if (bits == 0) return;
  if (bits < 8) {
    codes[i * bits / 8] |= static_cast<std::byte>(code << i * bits % 8);
  } else {
    std::memcpy(codes + i * (bits / 8), &code, bits / 8);
  }
}

inline std::uint32_t get_code(const std::byte* codes, std::uint32_t bits, std::uint64_t i) {
  std::uint32_t code = 0;
  if (bits == 0) return code;
  if (bits < 8) {
    code = static_cast<std::uint32_t>(codes[i * bits / 8]) >> i * bits % 8 & ((1u << bits) - 1);
  } else {
    std::memcpy(&code, codes + i * (bits / 8), bits / 8);
  }
  return code;
}

}  // namespace winnow::kernels
