// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Ranks of one node: an MPI_Allreduce is preceded by no probe, which would let MPI work, and a rank
// that has aborted still ends those of the others.
#include <mpi.h>

#include <array>
#include <cstdio>
#include <string>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>

namespace {

int probes = 0;

bool expect(bool holds, const char* what) {
  if (!holds) std::fprintf(stderr, "%s\n", what);
  return holds;
}

}  // namespace

extern "C" int MPI_Iprobe(int source, int tag, MPI_Comm communicator, int* flag,
                          MPI_Status* status) {
  ++probes;
  return PMPI_Iprobe(source, tag, communicator, flag, status);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool good = true;
  {
    const auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
    winnow::Workspace workspace;
    std::array<float, 4> elements{1, 2, 3, 4};
    const auto all_reduce = [&] {
      transport->all_reduce({.workspace = &workspace}, std::span(elements),
                            winnow::ReduceOp::maximum, winnow::Deadline::never());
      transport->all_reduce({.workspace = &workspace}, std::span(elements), winnow::ReduceOp::sum,
                            winnow::Deadline::never());
    };
    probes = 0;
    all_reduce();
    good &= expect(probes == 0, "an all_reduce probes");
    good &= expect(elements[3] == 4.0F * static_cast<float>(transport->size()), "a wrong sum");

    const bool aborts = transport->rank() == 1;
    if (aborts) transport->abort("had enough");
    MPI_Barrier(MPI_COMM_WORLD);
    try {
      all_reduce();
      good &= expect(false, "an all_reduce without the rank that has aborted");
    } catch (const winnow::CommError& error) {
      const bool says = std::string(error.what()).find("had enough") != std::string::npos;
      good &= expect(says, error.what());
    }
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
