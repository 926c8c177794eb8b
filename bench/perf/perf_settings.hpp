// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>
#include <winnow/elements.hpp>
#include <winnow/options.hpp>

namespace winnow::bench {

/// An element type or operation under its nccl-tests name.
struct NamedType {
  std::string name;
  ElementType type;
};
struct NamedOp {
  std::string name;
  ReduceOp op;
};

/// The command line of allreduce_perf; names and defaults are those of nccl-tests.
struct PerfSettings {
  int threads = 2;
  std::uint64_t min_bytes = std::uint64_t{32} << 20, max_bytes = std::uint64_t{32} << 20;
  std::uint64_t step_bytes = std::uint64_t{1} << 20;
  std::uint64_t step_factor = 1;  ///< from 2 on it replaces step_bytes
  int iters = 20, warmup_iters = 5, check = 1;
  int cycles = 1;      ///< of the whole table; 0: for ever
  int timestamps = 0;  ///< 1: each row ends with the time of day
  std::vector<NamedType> types;
  std::vector<NamedOp> ops;
  Options options;
  bool scatters = false;        ///< the calls are reduce_scatter instead of all_reduce
  std::string memory = "host";  ///< of buckets; or "device"
  std::string transport;        ///< "local", "mpi", "tcp" or "nccl": for the messages of calls
  int graphs = 0;  ///< replays of a CUDA graph of the call instead of each timed call; 0: none
  std::string output_file;  ///< empty: none
  std::vector<std::string> arguments;
  std::vector<std::string> notes;  ///< on arguments that mean less than one may think
};

/// Reads the command line. Returns -1 to go on, else the exit status with a text in `words`.
int parse(int argc, char** argv, bool under_mpirun, PerfSettings& settings, std::string& words);

}  // namespace winnow::bench
