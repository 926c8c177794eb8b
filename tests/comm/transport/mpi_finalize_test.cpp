// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A transport that outlives MPI_Finalize must only free memory, and refuse the rest: MPI ends the
// process otherwise.
#include <array>
#include <cstdio>
#include <functional>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>
#include <winnow/winnow.hpp>

namespace {

bool refuses(const char* what, const std::function<void()>& call) {
  try {
    call();
  } catch (const winnow::UsageError&) {
    return true;
  }
  std::fprintf(stderr, "%s is not refused\n", what);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  bool good =
      refuses("a transport before MPI_Init", [] { (void)winnow::mpi_transport(MPI_COMM_WORLD); });
  MPI_Init(&argc, &argv);
  good &=
      refuses("a transport of no communicator", [] { (void)winnow::mpi_transport(MPI_COMM_NULL); });
  auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
  winnow::AllReducer reducer(winnow::mpi_transport(MPI_COMM_WORLD),
                             {.compressor = "topk:0.5", .schedule = "gather", .min_bytes = 0});
  std::array<float, 4> bucket{1, 2, 3, 4};
  reducer.all_reduce(std::span(bucket), 0);
  std::array<float, 3> elements{1, 2, 3};
  transport->all_reduce({}, std::span(elements), winnow::ReduceOp::sum, winnow::Deadline::never());
  const float ranks = static_cast<float>(transport->size());
  MPI_Finalize();
  good &= refuses("a start after MPI_Finalize", [&] { (void)transport->start({}); });
  good &= refuses("an all_reduce after MPI_Finalize", [&] {
    transport->all_reduce({}, std::span(elements), winnow::ReduceOp::sum,
                          winnow::Deadline::never());
  });
  good &= refuses("a call after MPI_Finalize", [&] { reducer.all_reduce(std::span(bucket), 0); });
  transport->abort("too late");
  transport.reset();
  return good && elements == std::array<float, 3>{ranks, 2 * ranks, 3 * ranks} ? 0 : 1;
}
