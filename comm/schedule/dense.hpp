// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// 2 (P - 1) / P * 4 bytes an element: what a ring sends, and the least that any dense allreduce
/// can.
std::uint64_t dense_wire_bytes(const CostShape& shape);

/// Those that leave the node with the most links of the ring, from each rank to the next.
std::uint64_t dense_network_bytes(const CostShape& shape);

double dense_pass_bytes(const CostShape& shape);

/// One all_reduce of the transport over all pieces: in place where they follow each other in
/// memory, through scratch of the same size where they do not (which is each rank's own affair).
/// What earlier compressed calls left in the residual travels with the first dense call. Leaves
/// Exchange::sum, and elements and residual as they were where it is not in place.
Rounds run_dense(Exchange& exchange);

/// Writes the sum times Exchange::factor to the elements; the residual that travelled with it is
/// cleared.
void write_dense(Exchange& exchange, const Exec& exec);

}  // namespace winnow::comm
