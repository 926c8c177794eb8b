// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/put_back.hpp"

#include "kernels/cpu/add_lists.hpp"

namespace winnow::kernels::cpu {

void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list) {
  const Term term{.index = list.index, .value = list.value};
  (void)add_lists(exec, {&term, 1}, base, sum, 1);
}

}  // namespace winnow::kernels::cpu
