// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/put_back.cuh"
#include "kernels/put_back.hpp"

namespace winnow::kernels::cuda {

void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list) {
  if (list.index.empty()) return;
  launch<PutBack>(exec, blocks_of(list.index.size()),
                  {sum.data(), base, list.index.data(), list.value.data(), list.index.size()});
}

}  // namespace winnow::kernels::cuda
