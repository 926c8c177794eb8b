// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

#include "kernels/arithmetic/element.hpp"

namespace winnow::kernels::reference {

void fill(const Exec&, const Elements& elements, float value) {
  for (std::size_t i = 0; i < elements.size(); ++i) (void)write_element(elements, i, value);
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
