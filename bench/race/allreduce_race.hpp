// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>
#include <winnow/options.hpp>

#include "bench/ranks.hpp"
#include "kernels/exec/host_memory.hpp"

namespace winnow::bench {

/// A contender against the dense allreduces of Rank::dense.
struct Entrant {
  std::string name;        ///< of the benchmark, without the size
  std::string compressor;  ///< empty: a dense allreduce itself, number `dense`
  std::string schedule;    ///< as in Options
  double deadline = 0;     ///< as in Options; if set, dense is Winnow's ring
  std::uint64_t max_part = Options::kAutomatic;  ///< as in Options
  std::size_t parameters = 1;                    ///< of equal size, which the elements are cut into
  std::size_t dense = 0;                         ///< place in Rank::dense
};

/// All pairs of a compressor and a schedule (from the library's table, or "auto"), and the dense
/// allreduces. Compressed pairs appear once for each of max_parts. All have so many parameters.
std::vector<Entrant> entrants(const Rank& rank, const std::vector<std::string>& compressors,
                              const std::vector<std::uint64_t>& max_parts, std::size_t parameters);

/// Medians over the rounds, in seconds; the slowest rank of each round counts.
struct Outcome {
  std::string problem;  ///< why it could not run, or empty
  bool failed = false;  ///< it could not run although it fits the ranks and the size
  double seconds = 0, best_dense = 0;
  double select = 0, exchange = 0, add = 0;
  double making = 0;  ///< of the AllReducer, once
  std::uint64_t wire_bytes = 0, dense_wire_bytes = 0, kept = 0;
  std::string chose;  ///< by which schedule and why, if the choice was open
};

/// How long a measurement is.
struct Length {
  int rounds = 11;
  int settling = 96;  ///< untimed calls first, until residual and bound have settled
};

/// One rank's gradients and clock.
class Race {
 public:
  explicit Race(Rank& rank) : rank_(rank) {}

  /// Collective. Every round runs every dense allreduce and the entrant in turn, each from a
  /// barrier on and with a new gradient; each round begins with another of them.
  Outcome run(const Entrant& entrant, std::size_t count, Length length);

 private:
  void reserve(std::size_t count);
  std::span<float> refill(std::size_t count);

  Rank& rank_;
  kernels::HostArray<float> pool_, gradient_;
  std::size_t shift_ = 0;
};

}  // namespace winnow::bench
