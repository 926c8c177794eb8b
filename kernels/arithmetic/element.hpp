// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <winnow/elements.hpp>
#include <winnow/error.hpp>

#include "kernels/arithmetic/half.hpp"

namespace winnow::kernels {

/// Whether elements of this type are gradients, which may travel compressed.
constexpr bool is_gradient(ElementType type) {
  return type <= ElementType::fp16;
}

/// Bytes of an element as it travels dense: 16-bit gradients are widened.
constexpr std::size_t travelling_bytes(ElementType type) {
  return is_gradient(type) ? sizeof(float) : bytes_of(type);
}

inline void expect_gradient(ElementType type) {
  WINNOW_EXPECTS(is_gradient(type), "elements of a gradient are float32, bf16 or fp16");
}

// Single elements of a gradient, of any type.

/// Exactly, but for the payload of a NaN.
inline float read_element(const ConstElements& elements, std::size_t i) {
  switch (elements.type()) {
    case ElementType::bf16:
      return widen_bf16(elements.halves()[i]);
    case ElementType::fp16:
      return widen_fp16(elements.halves()[i]);
    default:
      return elements.as<float>()[i];
  }
}

/// Rounds to nearest even, and returns what then is there.
inline float write_element(const Elements& elements, std::size_t i, float x) {
  switch (elements.type()) {
    case ElementType::bf16:
      return widen_bf16(elements.halves()[i] = narrow_bf16(x));
    case ElementType::fp16:
      return widen_fp16(elements.halves()[i] = narrow_fp16(x));
    default:
      return elements.floats()[i] = x;
  }
}

}  // namespace winnow::kernels
