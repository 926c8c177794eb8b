// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

#include <cstdint>

#include "kernels/arithmetic/element.hpp"
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void fill(const Exec& exec, const Elements& elements, float value) {
  expect_gradient(elements.type());
  dispatch(exec, &Bodies::fill, elements, value);
}

void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  WINNOW_EXPECTS(to.size() == from.size(), "what is copied must be as long as its place");
  dispatch(exec, &Bodies::copy, to, from);
}

void store(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  WINNOW_EXPECTS(to.size() == from.size() && to.size() % sizeof(std::uint32_t) == 0 &&
                     reinterpret_cast<std::uintptr_t>(to.data()) % alignof(std::uint32_t) == 0,
                 "what is stored must be whole words, as long as their place");
  dispatch(exec, &Bodies::store, to, from);
}

void zero(const Exec& exec, std::span<std::byte> bytes) {
  WINNOW_EXPECTS(exec.condition.words == nullptr, "zero takes no condition: fill does");
  dispatch(exec, &Bodies::zero, bytes);
}

}  // namespace winnow::kernels
