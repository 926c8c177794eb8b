// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/checksum.hpp"

#include <cstring>

namespace winnow::kernels::reference {

void checksums(const Exec&, std::span<const std::span<const std::byte>> messages,
               std::uint64_t* sums) {
  for (std::size_t m = 0; m < messages.size(); ++m) {
    sums[m] = 0;
    for (std::uint64_t i = 0; i < messages[m].size() / 4; ++i) {
      std::uint32_t word;
      std::memcpy(&word, messages[m].data() + 4 * i, 4);
      sums[m] += word * (2 * i + 1);
    }
  }
}

}  // namespace winnow::kernels::reference
