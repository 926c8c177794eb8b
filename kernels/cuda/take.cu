// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/take.cuh"
#include "kernels/take.hpp"

namespace winnow::kernels::cuda {

void take(const Exec& exec, std::span<float> elements, std::uint32_t base,
          std::span<const std::uint32_t> index, std::span<float> value) {
  if (index.empty()) return;
  launch<Take>(exec, blocks_of(index.size()),
               {elements.data(), base, index.data(), value.data(), index.size()});
}

void put(const Exec& exec, std::span<float> elements, std::uint32_t base, const SparseView& list) {
  if (list.index.empty()) return;
  launch<Put>(exec, blocks_of(list.index.size()),
              {elements.data(), base, list.index.data(), list.value.data(), list.index.size()});
}

}  // namespace winnow::kernels::cuda
