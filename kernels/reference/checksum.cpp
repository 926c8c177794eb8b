// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/checksum.hpp"

#include <cstring>

namespace winnow::kernels::reference {

std::uint64_t checksum(const Exec&, std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < bytes.size() / 4; ++i) {
    std::uint32_t word;
    std::memcpy(&word, bytes.data() + 4 * i, 4);
    sum += word * (2 * i + 1);
  }
  return sum;
}

}  // namespace winnow::kernels::reference
