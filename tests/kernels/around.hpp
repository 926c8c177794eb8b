// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace winnow::tests {

/// Elements that lie before and after those of a case, at least: a write outside shows there.
inline constexpr std::size_t kAround = 8;

}  // namespace winnow::tests
