// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <vector>
#include <winnow/transport.hpp>

namespace train {

/// One rank's transports: one for the trainer itself, one for each AllReducer.
struct Links {
  int place = 0;  ///< this rank's number on its node
  std::unique_ptr<winnow::Transport> group;
  std::vector<std::shared_ptr<winnow::Transport>> reducers;
};

/// The body of every rank.
using RankMain = std::function<void(Links)>;

/// Runs `body` on `ranks` threads of this process; returns the exit status.
int launch_threads(int ranks, std::size_t reducers, const RankMain& body);

/// Runs `body` as one rank of an MPI job that mpirun started; returns the exit status. Without MPI,
/// has_mpi() is false and this says so.
int launch_mpi(std::size_t reducers, const RankMain& body);
bool has_mpi();

/// Runs `body` on rank `rank` and reports errors on which all ranks agree (Exit, and
/// winnow::UsageError, which every rank throws); returns the exit status. Other exceptions pass
/// through.
int run_rank(int rank, const std::function<void()>& body);

/// Writes one line about an error of this rank.
void report(int rank, const std::exception& error);

}  // namespace train
