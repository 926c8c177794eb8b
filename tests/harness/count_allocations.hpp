// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace winnow::tests {

/// How often this thread has called operator new. A test that links count_allocations.cpp replaces
/// operator new in its whole binary.
std::uint64_t thread_allocations();

}  // namespace winnow::tests
