// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/put_back.hpp"

namespace winnow::kernels::reference {

void put_back(const Exec&, std::span<float> sum, std::uint32_t base, const SparseView& list) {
  for (std::size_t i = 0; i < list.index.size(); ++i) sum[list.index[i] - base] += list.value[i];
}

}  // namespace winnow::kernels::reference
