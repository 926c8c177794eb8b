// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <winnow/mpi.hpp>
#include <winnow/transport.hpp>

#include "tools/winnow/discovery.hpp"

namespace tool {

void discover_and(const std::function<void(const winnow::Topology&)>& tell) {
  MPI_Init(nullptr, nullptr);
  {
    const auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
    const winnow::Topology topology =
        winnow::discover(*transport, winnow::Deadline::after(std::chrono::minutes(1)));
    if (transport->rank() == 0) tell(topology);
  }
  MPI_Finalize();
}

}  // namespace tool
