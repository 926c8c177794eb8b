// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>
#include <winnow/elements.hpp>

#include "kernels/half.hpp"
#include "lab/reference/place.hpp"

namespace winnow::tests {

// Gradients of 16 bits beside the same numbers in float32.

inline constexpr ElementType kHalves[] = {ElementType::bf16, ElementType::fp16};

/// None where the type is float32.
inline std::vector<std::uint16_t> halves_of(ElementType type, std::span<const float> values) {
  std::vector<std::uint16_t> halves(type == ElementType::float32 ? 0 : values.size());
  if (!halves.empty()) kernels::narrow({.place = lab::kReference}, type, values, halves);
  return halves;
}

inline Elements gradient_of(ElementType type, std::span<float> values,
                            std::span<std::uint16_t> halves) {
  if (type == ElementType::float32) return values;
  return {halves.data(), halves.size(), type};
}

/// Rounds the values to numbers that an element of the type has.
inline void round_to(ElementType type, std::span<float> values) {
  if (type == ElementType::float32) return;
  kernels::widen({.place = lab::kReference}, type, halves_of(type, values), values);
}

}  // namespace winnow::tests
