// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <winnow/transport.hpp>

namespace winnow::tests {

/// How many threads may call MPI: one at a time, or any.
enum class MpiThreads { serialized, multiple };

/// The MPI job of which this process is a rank. mpi_job.cpp if MPI was found; otherwise
/// no_mpi_job.cpp, whose start() throws.
struct MpiJob {
  int rank = 0;
  int ranks = 1;

  /// MPI_Init; messages longer than `chunk_bytes` travel in pieces (0: the default).
  static MpiJob start(int& argc, char**& argv, std::size_t chunk_bytes, MpiThreads threads);
  /// A new transport over all ranks; collective.
  std::unique_ptr<Transport> transport() const;
  /// MPI_Finalize; returns the highest exit code of all ranks.
  int finish(int exit_code) const;

  std::size_t chunk_bytes = 0;
};

}  // namespace winnow::tests
