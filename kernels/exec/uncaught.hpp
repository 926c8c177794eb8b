// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace winnow::kernels {

/// Notes which rank the calling thread is, for programs that no launcher has numbered.
void note_rank(int rank) noexcept;

/// "rank 2 on host7", for messages; "host7" if neither a launcher nor note_rank has said the rank.
std::string this_rank();

}  // namespace winnow::kernels
