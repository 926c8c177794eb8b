// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <vector>
#include <winnow/mpi.hpp>
#include <winnow/winnow.hpp>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const winnow::Options options{.compressor = "topk:0.01", .op = winnow::ReduceOp::sum};
    winnow::AllReducer reducer(winnow::mpi_transport(MPI_COMM_WORLD),
                               winnow::Options::from_environment(options));
    std::vector<float> gradient(1 << 20, 1.0F);
    // Was MPI_Allreduce(MPI_IN_PLACE, gradient.data(), ...); 0 is the parameter's id.
    reducer.all_reduce(gradient, 0);
    if (reducer.transport().rank() == 0) {
      std::cout << reducer.last().schedule << ": " << reducer.last().wire_bytes
                << " bytes sent instead of " << reducer.last().dense_wire_bytes << '\n';
    }
  }
  MPI_Finalize();
}
