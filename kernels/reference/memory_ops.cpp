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

void store(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  copy(exec, to, from);
}

void zero(const Exec&, std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte = {};
}

}  // namespace winnow::kernels::reference
