// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A transport that outlives MPI_Finalize must only free memory: MPI ends the process otherwise.
#include <array>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>

int main(int argc, char** argv) {
  try {
    (void)winnow::mpi_transport(MPI_COMM_WORLD);
    return 1;  // MPI is not initialised yet
  } catch (const winnow::UsageError&) {
  }
  MPI_Init(&argc, &argv);
  auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
  std::array<float, 3> elements{1, 2, 3};
  transport->all_reduce({}, std::span(elements), winnow::ReduceOp::sum, winnow::Deadline::never());
  const float ranks = static_cast<float>(transport->size());
  MPI_Finalize();
  transport->abort("too late");
  transport.reset();
  return elements == std::array<float, 3>{ranks, 2 * ranks, 3 * ranks} ? 0 : 1;
}
