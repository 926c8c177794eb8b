// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Ranks of one node: few elements are reduced without MPI, many by an MPI_Allreduce that no probe
// precedes. A rank that waits for another lets MPI work, and stops at its deadline or when one has
// aborted.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>

namespace {

using winnow::Deadline;
using winnow::ReduceOp;
using winnow::Transport;

int probes = 0, reductions = 0;

bool expect(bool holds, const char* what) {
  if (!holds) std::fprintf(stderr, "%s\n", what);
  return holds;
}

void all_reduce(Transport& transport, std::vector<float>& elements, ReduceOp op,
                Deadline deadline = Deadline::never()) {
  winnow::Workspace workspace;
  transport.all_reduce({.workspace = &workspace}, elements, op, deadline);
}

/// Whether the reduction fails with a reason that has these words.
bool fails(Transport& transport, std::size_t count, const char* words, Deadline deadline) {
  std::vector<float> elements(count);
  try {
    all_reduce(transport, elements, ReduceOp::sum, deadline);
    return expect(false, "an all_reduce without a rank");
  } catch (const winnow::CommError& error) {
    return expect(std::string(error.what()).find(words) != std::string::npos, error.what());
  }
}

bool reduces(Transport& transport, std::size_t count, int expected_reductions) {
  std::vector<float> elements(count, 4);
  probes = reductions = 0;
  all_reduce(transport, elements, ReduceOp::maximum);
  all_reduce(transport, elements, ReduceOp::sum);
  bool good = expect(elements.back() == 4.0F * static_cast<float>(transport.size()), "a wrong sum");
  good &= expect(reductions == expected_reductions, "another number of MPI's reductions");
  good &= expect(expected_reductions == 0 || probes == 0, "an MPI_Allreduce after a probe");
  return good;
}

/// Rank 1 comes once rank 0, which waits for it, has let MPI take a long message.
bool lets_mpi_work(Transport& transport) {
  std::vector<std::byte> message(std::size_t{4} << 20);
  const auto bytes = static_cast<int>(message.size());
  std::vector<float> elements(4, 1);
  const auto reduce = [&] {
    all_reduce(transport, elements, ReduceOp::sum, Deadline::after(std::chrono::seconds(60)));
  };
  if (transport.rank() == 0) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(message.data(), bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
    reduce();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    if (transport.rank() == 1) MPI_Ssend(message.data(), bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    reduce();
  }
  return expect(elements[0] == static_cast<float>(transport.size()), "a wrong sum after a message");
}

}  // namespace

extern "C" int MPI_Iprobe(int source, int tag, MPI_Comm communicator, int* flag,
                          MPI_Status* status) {
  ++probes;
  return PMPI_Iprobe(source, tag, communicator, flag, status);
}

extern "C" int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm communicator) {
  ++reductions;
  return PMPI_Allreduce(from, to, count, type, op, communicator);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool good = true;
  for (const std::size_t count : {std::size_t{4}, std::size_t{1} << 20}) {
    const auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
    good &= reduces(*transport, count, count == 4 ? 0 : 2);
    good &= lets_mpi_work(*transport);
    if (transport->rank() == 1) transport->abort("had enough");
    MPI_Barrier(MPI_COMM_WORLD);
    good &= fails(*transport, count, "had enough", Deadline::never());
    MPI_Barrier(MPI_COMM_WORLD);
  }
  {
    const auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
    if (transport->rank() != 1) {
      good &= fails(*transport, 4, "deadline", Deadline::after(std::chrono::milliseconds(50)));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  {
    const auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
    if (transport->rank() == 1) {
      transport->abort("had enough");
    } else {
      good &= fails(*transport, 4, "had enough", Deadline::never());
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
