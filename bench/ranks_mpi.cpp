// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cerrno>  // program_invocation_short_name
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>
#include <winnow/mpi.hpp>

#include "bench/ranks.hpp"
#include "kernels/exec/uncaught.hpp"

namespace winnow::bench {
namespace {

/// If dynamic rules are on, Open MPI reads a communicator's algorithm from a control variable when
/// the communicator is made. MPI_Init reads that switch once, from the environment.
constexpr const char* kDynamicRules = "OMPI_MCA_coll_tuned_use_dynamic_rules";
constexpr const char* kAlgorithm = "coll_tuned_allreduce_algorithm";

struct Algorithm {
  const char* name;
  int number;  // Open MPI's
};
// Open MPI's own choice comes first and exists with any MPI. Nonoverlapping is a reduction and then
// a broadcast.
constexpr Algorithm kAlgorithms[] = {{"mpi_default", 0},
                                     {"mpi_ring", 4},
                                     {"mpi_nonoverlapping", 2},
                                     {"mpi_recursive_doubling", 3},
                                     {"mpi_rabenseifner", 6}};

/// False if this MPI library has no such variable or does not allow writing it.
bool choose(int algorithm) {
  int index = 0, count = 0;
  MPI_T_cvar_handle handle{};
  if (MPI_T_cvar_get_index(kAlgorithm, &index) != MPI_SUCCESS) return false;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return false;
  const bool written = count == 1 && MPI_T_cvar_write(handle, &algorithm) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  return written;
}

std::vector<Dense> dense_algorithms() {
  std::vector<Dense> dense;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (!choose(algorithm.number) && algorithm.number != 0) continue;
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    dense.push_back({algorithm.name, [communicator](std::span<float> elements) {
                       MPI_Allreduce(MPI_IN_PLACE, elements.data(),
                                     static_cast<int>(elements.size()), MPI_FLOAT, MPI_SUM,
                                     communicator);
                     }});
  }
  choose(0);  // for the communicators of Winnow
  // Winnow's ring: the body that the MPI transport overrides.
  const std::shared_ptr<Transport> transport = mpi_transport(MPI_COMM_WORLD);
  const auto workspace = std::make_shared<Workspace>();
  dense.push_back({"ring", [transport, workspace](std::span<float> elements) {
                     transport->Transport::all_reduce({.workspace = workspace.get()}, elements,
                                                      ReduceOp::sum, Deadline::never());
                   }});
  return dense;
}

constexpr int kRefused = 2;  // the status of a program with a wrong command line or environment
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

}  // namespace

int run_mpi(const RankMain& body) {
  setenv(kDynamicRules, "1", 0);
  int provided = 0, status = 0;
  MPI_Init(nullptr, nullptr);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  try {
    Rank rank;
    rank.control = mpi_transport(MPI_COMM_WORLD);
    rank.connect = [] { return mpi_transport(MPI_COMM_WORLD); };
    rank.dense = dense_algorithms();
    status = body(rank);
    // Rank 0 has said why, for all that were refused.
    if (status == kRefused && !all_ranks_come()) {
      throw std::runtime_error(
          "other ranks are not refused: do this rank's arguments and environment differ?");
    }
  } catch (const std::exception& error) {
    // The others may wait for this rank for ever; MPI_Finalize would wait for them.
    std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name,
                 kernels::this_rank().c_str(), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_T_finalize();
  MPI_Finalize();
  return status;
}

}  // namespace winnow::bench
