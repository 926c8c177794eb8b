// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>

#include "train/exit.hpp"
#include "train/launch.hpp"

namespace train {

bool has_mpi() {
  return true;
}

namespace {

constexpr std::chrono::seconds kForOthers{3};

/// Whether all ranks come here within that time.
bool all_ranks_come() {
  MPI_Request all = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &all);
  const auto end = std::chrono::steady_clock::now() + kForOthers;
  int came = 0;
  while (MPI_Test(&all, &came, MPI_STATUS_IGNORE) == MPI_SUCCESS && came == 0 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return came != 0;
}

/// Runs `body`. A UsageError that other ranks do not have becomes another exception.
void run_together(const std::function<void()>& body) {
  try {
    body();
  } catch (const winnow::UsageError& error) {
    if (all_ranks_come()) throw;
    throw std::runtime_error(error.what());
  }
}

}  // namespace

int launch_mpi(std::size_t reducers, const RankMain& body) {
  // --overlap needs MPI_THREAD_MULTIPLE; with less, calls in flight run inside wait.
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int status = 0;
  try {
    status = run_rank(rank, [&] {
      Links links;
      MPI_Comm node = MPI_COMM_NULL;
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
      MPI_Comm_rank(node, &links.place);
      MPI_Comm_free(&node);
      links.group = winnow::mpi_transport(MPI_COMM_WORLD);
      for (std::size_t i = 0; i < reducers; ++i) {
        links.reducers.push_back(winnow::mpi_transport(MPI_COMM_WORLD));
      }
      run_together([&] { body(std::move(links)); });
    });
  } catch (const std::exception& error) {
    // The others may wait for this rank for ever; MPI_Finalize would wait for them.
    report(rank, error);
    MPI_Abort(MPI_COMM_WORLD, kFailureStatus);
  }
  MPI_Finalize();
  return status;
}

}  // namespace train
