// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Of libwinnow_mpi.
#include <winnow/mpi.hpp>

#include "comm/c_interface/given.hpp"
#include "comm/c_interface/status.hpp"
#include "comm/c_interface/transport.hpp"

extern "C" int winnow_mpi_transport(const void* communicator, double seconds,
                                    winnow_transport** transport) {
  return winnow::comm::guarded([&] {
    MPI_Comm world =
        winnow::comm::expect_given(static_cast<const MPI_Comm*>(communicator), "communicator");
    auto& made = winnow::comm::expect_given(transport, "transport");
    made = new winnow_transport{winnow::mpi_transport(world, 0, winnow::MpiMemory::automatic,
                                                      winnow::comm::deadline_of(seconds))};
  });
}
