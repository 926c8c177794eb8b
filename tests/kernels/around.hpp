// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace winnow::tests {

/// Elements that lie before and after those of a case, at least: a write outside shows there.
inline constexpr std::size_t kAround = 8;

/// Elements with those on either side of them, and back.
inline std::span<float> around(std::span<float> elements) {
  return {elements.data() - kAround, elements.size() + 2 * kAround};
}
inline std::span<float> inside(std::span<float> elements) {
  return elements.subspan(kAround, elements.size() - 2 * kAround);
}

}  // namespace winnow::tests
