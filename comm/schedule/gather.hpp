// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// (P - 1) messages of k elements.
std::uint64_t gather_wire_bytes(const CostShape& shape);

std::uint64_t gather_network_bytes(const CostShape& shape);

double gather_pass_bytes(const CostShape& shape);

/// Every rank sends its message to every other rank; all add messages in rank order, so position i
/// sums as ((0 + m[0][i]) + m[1][i]) + ... One round; rank r sends to r+1, r+2, ... first, so that
/// no rank is everybody's first target.
Rounds run_gather(Exchange& exchange);

}  // namespace winnow::comm
