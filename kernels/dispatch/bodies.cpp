// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

#include <algorithm>

namespace winnow::kernels {

bool holds(const Condition& condition) {
  if (condition.words == nullptr) return true;
  const std::span words(condition.words, condition.count);
  return std::ranges::any_of(words, [](std::uint32_t word) { return word != 0; }) == condition.any;
}

}  // namespace winnow::kernels
