// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/elementwise.hpp"
#include "kernels/half.hpp"

namespace winnow::tests {

// Operations that answer in a word, asked of a place of the host.

inline bool is_all_finite(const Exec& exec, std::span<const float> elements) {
  std::uint32_t not_finite = 0;
  kernels::all_finite(exec, elements, &not_finite);
  return not_finite == 0;
}

inline bool do_fit(const Exec& exec, ElementType type, std::span<const float> in, float factor) {
  std::uint32_t too_large = 0;
  kernels::fits(exec, type, in, factor, &too_large);
  return too_large == 0;
}

}  // namespace winnow::tests
