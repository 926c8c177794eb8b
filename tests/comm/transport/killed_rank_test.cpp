// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The last rank is killed in the middle of a job, under mpirun --enable-recovery: the others get a
// CommError at the deadline, keep everything, and finish the sum over TCP, without it.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>
#include <winnow/mpi.hpp>
#include <winnow/tcp.hpp>
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

/// Every rank's address, by rank.
std::vector<std::string> gather_addresses(const std::string& mine, int size) {
  const int bytes = static_cast<int>(mine.size());
  std::vector<int> sizes(static_cast<std::size_t>(size)), begins(sizes.size());
  MPI_Allgather(&bytes, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + sizes.back()), ' ');
  MPI_Allgatherv(mine.data(), bytes, MPI_CHAR, all.data(), sizes.data(), begins.data(), MPI_CHAR,
                 MPI_COMM_WORLD);
  std::vector<std::string> addresses;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    addresses.push_back(
        all.substr(static_cast<std::size_t>(begins[r]), static_cast<std::size_t>(sizes[r])));
  }
  return addresses;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace winnow;
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  TcpListener listener;
  const auto addresses = gather_addresses(listener.address(), size);
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

  {
    const std::shared_ptr<Transport> rest =
        listener.connect(rank, std::span(addresses).first(addresses.size() - 1),
                         Deadline::after(std::chrono::minutes(1)));
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
  }  // destroys the transport: who exits without counts as dead where others still receive
  std::printf("rank %d finished\n", rank);
  std::fflush(stdout);
  ::_exit(0);  // MPI_Finalize would wait for the killed rank
}
