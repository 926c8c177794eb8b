// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// (P - 1) supports of k / P positions and 2 (P - 1) times their values; indices travel once.
std::uint64_t shared_wire_bytes(const CostShape& shape);

std::uint64_t shared_network_bytes(const CostShape& shape);

std::uint64_t shared_messages(const CostShape& shape);

double shared_pass_bytes(const CostShape& shape);

/// All ranks send values at one support (Chen et al., ScaleCom, NeurIPS 2020, but with a picker per
/// share of the positions instead of one for all). In call number t of a part, rank r picks for
/// owner (r - t) mod P of kernels::Partition, so every rank takes its turn. Three rounds:
///   1. Each rank picks, from its own acc, the support at its owner's positions, and sends it to
///      all.
///   2. Each rank takes its acc at all supports, and sends each picker the values at its support.
///      Pickers add in rank order, value i as ((0 + v[0][i]) + v[1][i]) + ..., where v[picker] is
///      the picker's own acc, uncoded.
///   3. Each picker sends the sums to all. What a coding misses of them goes into its residual.
/// With float32 values nothing of acc is left at the supports, and rounds 2 and 3 have no headers:
/// those of round 1 say what follows. Winnow does not use the transport's allreduce here: pickers
/// add in the same order over any transport, with as many bytes in fewer rounds, and do not block
/// other parts.
Rounds run_shared(Exchange& exchange);

}  // namespace winnow::comm
