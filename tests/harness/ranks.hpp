// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <winnow/transport.hpp>

namespace winnow::tests {

/// A rank test's body, run on every rank with the rank's own transport.
using RankBody = std::function<void(const std::shared_ptr<Transport>&)>;

/// Runs `body` on `ranks` ranks, returns when all are done, and rethrows the first exception, by
/// rank, that left a body. Ranks are threads of this process; or simulated ranks of one node, if
/// the program was started with --transport=simulated; or, with --transport=mpi under mpirun, MPI
/// ranks: then the job fixes their number, whatever `ranks` says. Use EXPECT, not ASSERT, in
/// bodies. One rank does what each of many does: comm::OneOfMany.
void run_ranks(int ranks, const RankBody& body);

/// Likewise with the transports as they are: one rank is alone.
void run_bare_ranks(int ranks, const RankBody& body);

/// Runs `body` with `count` transports over the same ranks, for tests in which one transport is
/// lost. A body may move from them; the others live until every rank is done. Not simulated.
using RankBodyOfMany = std::function<void(std::span<std::shared_ptr<Transport>>)>;
void run_ranks(int ranks, std::size_t count, const RankBodyOfMany& body);

/// Runs `body` at each of rank_counts() on one node; for a schedule whose name begins with
/// "two_level" also on several nodes of several shapes.
void run_worlds(std::string_view schedule, const RankBody& body);

/// The numbers of ranks to test: 1, 2, 3, 4 and 7; under mpirun the job's own.
std::span<const int> rank_counts();

}  // namespace winnow::tests
