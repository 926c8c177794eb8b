// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace winnow::tests {

/// At least so many elements lie on either side of a case's elements: a write outside shows there.
inline constexpr std::size_t kAround = 8;

/// Adds the elements on either side to a span, and takes them off again.
inline std::span<float> around(std::span<float> elements) {
  return {elements.data() - kAround, elements.size() + 2 * kAround};
}
template <class T>
std::span<T> inside(std::span<T> elements) {
  return elements.subspan(kAround, elements.size() - 2 * kAround);
}

}  // namespace winnow::tests
