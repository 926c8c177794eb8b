// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train {

enum class Over { mpi, local };
enum class On { cpu, cuda };
enum class Show { automatic, never, always };

/// A run: what it compresses by, and the schedule that its messages take.
struct Row {
  std::string compressor;
  std::string schedule;  ///< empty: as WINNOW_SCHEDULE or the default says
  std::uint64_t steps;
};

inline constexpr const char* kNone = "none";  ///< the compressor of rows to compare with
/// A row's schedule: dense, by Winnow's ring rather than the transport's own allreduce.
inline constexpr const char* kDenseRing = "dense_ring";
/// A target: what the runs without compression end with.
inline constexpr const char* kDenseLoss = "dense";

/// What the command line asks for.
struct Settings {
  std::string text;  ///< a file; empty: the repository's own docs and sources
  std::uint64_t seed = 1;
  std::uint64_t batch = 32;     ///< windows a rank and step
  std::vector<Row> rows;        ///< one run each
  std::string target;           ///< a held-out loss, or kDenseLoss; empty: none
  bool overlap = false;         ///< reduce each layer while the next one back-propagates
  std::string json, csv, plot;  ///< files to write; empty: none
  Show progress = Show::automatic;
  On device = On::cpu;
  bool nccl = false;  ///< gradients travel over NCCL, whatever started the ranks
  Over transport = Over::mpi;
  int ranks = 1;  ///< over local; mpirun says how many over MPI
};

/// Throws Exit where help is asked for or something is wrong. Never prints, since every rank reads
/// the command line.
Settings read_command_line(int argc, char** argv);

}  // namespace train
