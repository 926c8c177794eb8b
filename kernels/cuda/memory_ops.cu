// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/memory_ops.cuh"
#include "kernels/cuda/memory_ops.hpp"

namespace winnow::kernels::cuda {

void fill(const Exec& exec, std::span<float> elements, float value) {
  if (elements.empty()) return;
  if (std::bit_cast<std::uint32_t>(value) == 0) {  // not -0
    clear(exec, elements.data(), elements.size());
    return;
  }
  launch<Fill>(exec, blocks_of((elements.size() + 3) / 4),
               {elements.data(), elements.size(), value});
}

void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  enqueue_copy(to, from, StreamRef(stream_of(exec)));
}

}  // namespace winnow::kernels::cuda
