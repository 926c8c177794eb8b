// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace winnow::comm {

// What every transport checks before it does anything: each throws UsageError.

/// That `peer` is another rank than `rank`, of `size`.
void expect_peer(int peer, int rank, int size);
/// That an all-gather of `mine` bytes of each of `ranks` ranks fills `all`.
void expect_gatherable(std::size_t mine, std::size_t all, int ranks);

}  // namespace winnow::comm
