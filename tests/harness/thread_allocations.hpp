// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace winnow::tests {

// What a thread allocates. A test that links thread_allocations.cpp replaces operator new and
// aligned_alloc in its whole binary.

/// How often this thread has called operator new.
std::uint64_t thread_allocations();

/// Which allocations fail: one, or it and all that follow, as when memory has run out.
enum class Failing { one, all };
/// Lets allocation number `n` of this thread from now on, counted from 0, fail by std::bad_alloc:
/// those of operator new and of a Workspace.
void fail_allocation(std::uint64_t n, Failing which = Failing::one);
/// Lets none fail any more. Returns whether one has since fail_allocation.
bool stop_failing();

}  // namespace winnow::tests
