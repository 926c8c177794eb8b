// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge.hpp"

namespace winnow::kernels::reference {

std::size_t merge(const Exec&, const SparseView& first, const SparseView& second,
                  std::span<std::uint32_t> index, std::span<float> value) {
  std::size_t i = 0, j = 0, size = 0;
  while (i < first.index.size() || j < second.index.size()) {
    const bool in_first =
        j == second.index.size() || (i < first.index.size() && first.index[i] <= second.index[j]);
    const bool in_second =
        i == first.index.size() || (j < second.index.size() && second.index[j] <= first.index[i]);
    index[size] = in_first ? first.index[i] : second.index[j];
    if (in_first && in_second) {
      value[size] = first.value[i] + second.value[j];
    } else {
      value[size] = in_first ? first.value[i] : second.value[j];
    }
    i += in_first ? 1 : 0;
    j += in_second ? 1 : 0;
    ++size;
  }
  return size;
}

}  // namespace winnow::kernels::reference
