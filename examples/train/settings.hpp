// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace train {

enum class Over { mpi, local };
enum class On { cpu, cuda };
enum class Show { automatic, never, always };

/// One run: its compressor and schedule.
struct Row {
  std::string compressor;
  std::string schedule;  ///< empty: from WINNOW_SCHEDULE or the default
  std::uint64_t steps;
};

inline constexpr const char* kNone = "none";  ///< the compressor of the dense runs
/// A row's schedule: dense, by Winnow's ring instead of the transport's own allreduce.
inline constexpr const char* kDenseRing = "dense_ring";
/// A target: the final loss of the runs without compression.
inline constexpr const char* kDenseLoss = "dense";

/// The command line.
struct Settings {
  std::string text;  ///< a file; empty: the repository's
  std::uint64_t seed = 1;
  std::uint64_t seeds = 1;   ///< each row trains with so many seeds, from `seed` on
  std::uint64_t batch = 32;  ///< windows per rank and step
  float rate = 0.1f, momentum = 0.9f;
  std::uint64_t warm_up = 0;        ///< steps in which the rate rises
  std::optional<float> look_ahead;  ///< of compressed runs; unset: by the formula
  std::uint64_t points = 0;         ///< of each curve; 0: as many as is usual
  std::vector<Row> rows;            ///< one run each
  std::string target;               ///< a held-out loss, or kDenseLoss; empty: none
  bool overlap = false;             ///< reduce each layer while the next one back-propagates
  std::string json, csv, plot;      ///< files to write; empty: none
  Show progress = Show::automatic;
  On device = On::cpu;
  bool nccl = false;  ///< gradients travel over NCCL, whatever started the ranks
  Over transport = Over::mpi;
  int ranks = 1;  ///< over local; over MPI mpirun decides
};

/// Throws Exit for help or an error. Never prints, since every rank reads the command line.
Settings read_command_line(int argc, char** argv);

}  // namespace train
