// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include <winnow/transport.hpp>

namespace winnow::bench {

/// A dense allreduce to compare with.
struct Dense {
  std::string name;
  std::function<void(std::span<float>)> all_reduce;
};

/// One rank's transports and rivals.
struct Rank {
  std::unique_ptr<Transport> control;  ///< for the benchmark's own messages
  /// A new transport of all ranks; collective.
  std::function<std::shared_ptr<Transport>()> connect;
  std::vector<Dense> dense;  ///< equal names on all ranks
};

using RankMain = std::function<int(Rank&)>;

/// Runs `body` on `ranks` threads, rank 0 on this one; returns rank 0's exit status. Rank::dense is
/// the local transport's ring.
int run_threads(int ranks, const RankMain& body);

/// Runs `body` as one rank of an MPI job; returns its exit status. Rank::dense is MPI_Allreduce,
/// with the library's algorithm and with fixed ones, and Winnow's ring.
int run_mpi(const RankMain& body);

/// A TCP transport over the ranks of `control`, which carries their addresses. Collective.
std::unique_ptr<Transport> connect_over_tcp(Transport& control);

/// Whether an MPI launcher started this process.
bool under_mpirun();

/// Returns on no rank before all have called it.
void barrier(Transport& control);

/// The greatest of all ranks' values, element by element; all ranks pass the same number of values.
std::vector<double> max_over_ranks(Transport& control, std::span<const double> mine);

}  // namespace winnow::bench
