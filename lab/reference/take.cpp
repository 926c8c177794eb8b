// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/take.hpp"

namespace winnow::kernels::reference {

void take(const Exec&, std::span<float> elements, std::uint32_t base,
          std::span<const std::uint32_t> index, std::span<float> value) {
  for (std::size_t j = 0; j < index.size(); ++j) {
    value[j] = elements[index[j] - base];
    elements[index[j] - base] = 0;
  }
}

void put(const Exec&, std::span<float> elements, std::uint32_t base, const SparseView& list) {
  for (std::size_t j = 0; j < list.index.size(); ++j) {
    elements[list.index[j] - base] = list.value[j];
  }
}

}  // namespace winnow::kernels::reference
