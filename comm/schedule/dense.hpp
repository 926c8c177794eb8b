// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// 2 (P - 1) / P * 4 bytes per element: what a ring sends, and the minimum of any dense allreduce.
std::uint64_t dense_wire_bytes(const CostShape& shape);

/// Bytes that leave the node with the most ring links; a link goes from each rank to the next.
std::uint64_t dense_network_bytes(const CostShape& shape);

double dense_pass_bytes(const CostShape& shape);

/// One all_reduce of the transport over all pieces: in place if they are adjacent in memory,
/// otherwise through scratch of the same size (each rank for itself). What compressed calls have
/// left in the residual travels with the first dense call. Leaves the result in Exchange::sum;
/// unless in place, elements and residual keep their content.
Rounds run_dense(Exchange& exchange);

/// Writes the sum times Exchange::factor to the elements, and clears the residual that travelled
/// with it.
void write_dense(Exchange& exchange, const Exec& exec);

}  // namespace winnow::comm
