// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Of libwinnow_mpi.
#include <string>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>

#include "comm/c_interface/given.hpp"
#include "comm/c_interface/status.hpp"
#include "comm/c_interface/transport.hpp"

namespace {

void make_transport(MPI_Comm communicator, double seconds, winnow_transport** transport) {
  auto& made = winnow::comm::expect_given(transport, "transport");
  made = new winnow_transport{winnow::mpi_transport(communicator, 0, winnow::MpiMemory::automatic,
                                                    winnow::comm::deadline_of(seconds))};
}

}  // namespace

extern "C" {

int winnow_mpi_transport(const void* communicator, double seconds, winnow_transport** transport) {
  return winnow::comm::guarded([&] {
    make_transport(
        winnow::comm::expect_given(static_cast<const MPI_Comm*>(communicator), "communicator"),
        seconds, transport);
  });
}

int winnow_mpi_transport_fortran(int communicator, double seconds, winnow_transport** transport) {
  return winnow::comm::guarded([&] {
    int begun = 0, ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    WINNOW_EXPECTS(begun != 0 && ended == 0,
                   std::string("communicator ") + std::to_string(communicator) + ": MPI " +
                       (ended != 0 ? "has ended" : "has not begun: call MPI_Init first"));
    MPI_Comm world = MPI_Comm_f2c(communicator);
    WINNOW_EXPECTS(world != MPI_Comm{}, "MPI has no communicator " + std::to_string(communicator));
    make_transport(world, seconds, transport);
  });
}

}  // extern "C"
