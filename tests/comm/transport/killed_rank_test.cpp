// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The last rank is killed in the middle of a job, under mpirun --enable-recovery: the others get a
// CommError at the deadline, keep everything, and finish the sum over a communicator without it.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>
#include <winnow/mpi.hpp>
#include <winnow/winnow.hpp>

#include "tests/harness/warned_transport.hpp"

namespace {

constexpr std::size_t kCount = 1000;
constexpr std::chrono::seconds kPatience{1};

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "killed_rank_test: not so: %s\n", what);
  std::fflush(stderr);
  ::_exit(1);
}

/// The communicator of all ranks but the last, made by these alone.
MPI_Comm without_last(int size) {
  MPI_Group world = MPI_GROUP_NULL, rest = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  const int last = size - 1;
  MPI_Group_excl(world, 1, &last, &rest);
  MPI_Comm communicator = MPI_COMM_NULL;
  constexpr int kTag = 1;
  expect(MPI_Comm_create_group(MPI_COMM_WORLD, rest, kTag, &communicator) == MPI_SUCCESS,
         "the survivors get a communicator");
  return communicator;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace winnow;
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto transport = std::make_shared<tests::WarnedTransport>(mpi_transport(MPI_COMM_WORLD));
  AllReducer reducer(transport, {.compressor = "topk:0.1",
                                 .schedule = "gather",
                                 .op = ReduceOp::sum,
                                 .min_bytes = 0,
                                 .deadline = 60});
  std::vector<float> gradient(kCount, 1.0F);
  reducer.all_reduce(gradient, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == size - 1) ::raise(SIGKILL);
  transport->warned = true;

  gradient.assign(kCount, 2.0F);
  try {
    reducer.all_reduce(gradient, 0);
    expect(false, "a call without the killed rank fails");
  } catch (const CommError&) {
  }
  const auto residual = reducer.residual(0);
  for (std::size_t i = 0; i < kCount; ++i) {
    expect(gradient[i] == 0, "the bucket reads zero");
    // Ties went to the first tenth: the first call sent it, and the rest waited.
    expect(residual[i] == (i < kCount / 10 ? 2.0F : 3.0F), "the residual holds everything");
  }

  try {
    (void)mpi_transport(MPI_COMM_WORLD, 0, MpiMemory::automatic, Deadline::after(kPatience));
    expect(false, "a transport with the killed rank fails");
  } catch (const CommError& error) {
    expect(std::strstr(error.what(), "deadline") != nullptr, error.what());
  }

  const std::shared_ptr<Transport> rest = mpi_transport(without_last(size));
  // All of them have finished the first call, and none the second.
  const auto finished = reducer.finished_calls(*rest, Deadline::after(std::chrono::minutes(1)));
  expect(finished == std::vector<std::uint64_t>(static_cast<std::size_t>(size - 1), 1),
         "each survivor has finished one call");
  AllReducer survivors(rest, {.compressor = "none", .op = ReduceOp::sum, .deadline = 60});
  gradient.assign(residual.begin(), residual.end());
  survivors.all_reduce(gradient, 0);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto ranks = static_cast<float>(size - 1);
    expect(gradient[i] == residual[i] * ranks, "the survivors' sum is that of their residuals");
  }
  std::printf("rank %d finished\n", rank);
  std::fflush(stdout);
  ::_exit(0);  // MPI_Finalize would wait for the killed rank
}
