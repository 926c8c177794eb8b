// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/mpi_job.hpp"

#include <stdexcept>
#include <winnow/mpi.hpp>

namespace winnow::tests {

MpiJob MpiJob::start(int& argc, char**& argv, std::size_t chunk_bytes, MpiThreads threads) {
  const bool multiple = threads == MpiThreads::multiple;
  const int wanted = multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  if (provided < wanted)
    throw std::runtime_error(multiple ? "MPI does not provide MPI_THREAD_MULTIPLE"
                                      : "MPI does not provide MPI_THREAD_SERIALIZED");
  MpiJob job;
  MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
  job.chunk_bytes = chunk_bytes;
  return job;
}

std::unique_ptr<Transport> MpiJob::transport() const {
  return mpi_transport(MPI_COMM_WORLD, chunk_bytes);
}

int MpiJob::finish(int exit_code) const {
  int highest = exit_code;
  MPI_Allreduce(&exit_code, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return highest;
}

}  // namespace winnow::tests
