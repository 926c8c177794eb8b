// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// 2 (P - 1) messages of k / P elements; as P grows, the bytes stay (P - 1) / P of a constant.
std::uint64_t balanced_wire_bytes(const CostShape& shape);

std::uint64_t balanced_network_bytes(const CostShape& shape);

double balanced_pass_bytes(const CostShape& shape);

/// Every rank owns the positions that kernels::Partition gives it (Li et al., Ok-Topk, PPoPP 2022,
/// but with owners that do not depend on the support). Two rounds:
///   1. Each rank sends each owner what it keeps of its gradient there. All of its own positions go
///      into the sum: they cost no wire, so they do not compete for k. Owners add in rank order,
///      position i as ((0 + m[0][i]) + m[1][i]) + ..., where m[owner] is its acc.
///   2. Each owner sends all ranks the elements of its sums that the compressor chooses; the rest
///      goes into its own residual.
Rounds run_balanced(Exchange& exchange);

}  // namespace winnow::comm
