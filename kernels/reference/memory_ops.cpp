// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

namespace winnow::kernels::reference {

void fill(const Exec&, std::span<float> elements, float value) {
  for (float& element : elements) element = value;
}

void copy(const Exec&, std::span<std::byte> to, std::span<const std::byte> from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i];
}

}  // namespace winnow::kernels::reference
