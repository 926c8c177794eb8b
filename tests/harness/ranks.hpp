// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <winnow/transport.hpp>

namespace winnow::tests {

/// What a rank test runs on every rank. The transport is the rank's own.
using RankBody = std::function<void(const std::shared_ptr<Transport>&)>;

/// Runs `body` on `ranks` ranks and returns when all are done; the first exception that leaves a
/// body, by rank, is rethrown. Over threads of this process; or, in a binary started with
/// --transport=simulated, over simulated ranks of one node; or, with --transport=mpi under mpirun,
/// over MPI: then the number of ranks is the job's, whatever `ranks` says. EXPECT, not ASSERT,
/// inside bodies.
void run_ranks(int ranks, const RankBody& body);

/// The same with several transports over the same ranks, for what survives the loss of one. A body
/// may move from them; those that it leaves live until every rank is done. Not simulated.
using RankBodyOfMany = std::function<void(std::span<std::shared_ptr<Transport>>)>;
void run_ranks(int ranks, std::size_t transports, const RankBodyOfMany& body);

/// Runs `body` at each of rank_counts(), on one node, and for a schedule whose name begins with
/// "two_level" also on several nodes of several shapes.
void run_worlds(std::string_view schedule, const RankBody& body);

/// The numbers of ranks to test at: 1, 2, 3, 4 and 7; the job's own under mpirun.
std::span<const int> rank_counts();

}  // namespace winnow::tests
