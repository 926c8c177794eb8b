// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace winnow::comm {

// Checks that every transport makes first; each throws UsageError.

/// `peer` is a rank of `size`, and not `rank`.
void expect_peer(int peer, int rank, int size);
/// An all-gather of `mine` bytes from each of `ranks` ranks fills `all`.
void expect_gatherable(std::size_t mine, std::size_t all, int ranks);

}  // namespace winnow::comm
