// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

void scale(const Exec& exec, std::span<float> elements, float factor) {
  if (elements.empty()) return;
  launch<Scale>(exec, blocks_of((elements.size() + 3) / 4),
                {elements.data(), elements.size(), factor});
}

void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite) {
  WINNOW_EXPECTS(not_finite != nullptr, "all_finite needs a word for its answer");
  if (elements.empty()) return;
  launch<AllFinite>(exec, blocks_of((elements.size() + 3) / 4),
                    {elements.data(), elements.size(), not_finite});
}

void zero(const Exec& exec, std::span<std::byte> bytes) {
  WINNOW_EXPECTS(exec.condition.words == nullptr, "zero takes no condition: fill does");
  if (!bytes.empty()) clear(exec, bytes.data(), bytes.size());
}

}  // namespace winnow::kernels::cuda
