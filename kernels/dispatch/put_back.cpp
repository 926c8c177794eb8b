// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/put_back.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list) {
  WINNOW_EXPECTS(list.index.size() == list.value.size(), "a list needs as many values as indices");
  dispatch(exec, &Bodies::put_back, sum, base, list);
}

}  // namespace winnow::kernels
