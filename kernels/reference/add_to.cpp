// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/add_to.hpp"

#include <cmath>
#include <vector>

namespace winnow::kernels::reference {

bool add_to(const Exec&, std::span<float> sum, std::uint32_t base,
            std::span<const SparseView> lists, float factor) {
  std::vector<bool> touched(sum.size(), false);
  for (const SparseView& list : lists) {
    for (std::size_t i = 0; i < list.index.size(); ++i) {
      const std::size_t position = list.index[i] - base;
      sum[position] += list.value[i];
      touched[position] = true;
    }
  }
  bool finite = true;
  for (std::size_t position = 0; position < sum.size(); ++position) {
    if (!touched[position]) continue;
    if (factor != 1) sum[position] *= factor;
    finite = finite && std::isfinite(sum[position]);
  }
  return finite;
}

void put_back(const Exec&, std::span<float> sum, std::uint32_t base, const SparseView& list) {
  for (std::size_t i = 0; i < list.index.size(); ++i) sum[list.index[i] - base] += list.value[i];
}

}  // namespace winnow::kernels::reference
