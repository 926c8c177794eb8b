// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <exception>
#include <winnow/mpi.hpp>
#include <winnow/transport.hpp>

#include "kernels/exec/uncaught.hpp"
#include "tools/winnow/discovery.hpp"

namespace tool {

void discover_and(const std::function<void(const winnow::Topology&)>& tell) {
  MPI_Init(nullptr, nullptr);
  try {
    const auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
    const winnow::Topology topology =
        winnow::discover(*transport, winnow::Deadline::after(std::chrono::minutes(1)));
    if (transport->rank() == 0) tell(topology);
  } catch (const std::exception& error) {
    // The others may wait for this rank for ever; MPI_Finalize would wait for them.
    std::fprintf(stderr, "winnow: %s: %s\n", winnow::kernels::this_rank().c_str(), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}

}  // namespace tool
