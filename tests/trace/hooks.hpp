// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace winnow::tests {

/// From now on notes each function that this thread enters and leaves, in builds with
/// -finstrument-functions.
void start_trace();
/// The addresses of functions entered, in order, and null where one is left.
std::vector<void*> end_trace();

}  // namespace winnow::tests
