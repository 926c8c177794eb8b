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

/// What runs against the dense allreduces of Rank::dense.
struct Entrant {
  std::string name;        ///< of the benchmark, without the size
  std::string compressor;  ///< empty: it is a dense one itself, `dense`
  std::string schedule;    ///< as in Options
  double deadline = 0;     ///< as in Options; with one, dense is Winnow's ring
  std::uint64_t max_part = Options::kAutomatic;  ///< as in Options
  std::size_t dense = 0;                         ///< place in Rank::dense
};

/// All pairs of a compressor and a schedule of the library's table or "auto", and the dense ones.
/// Compressed ones once for each of max_parts.
std::vector<Entrant> entrants(const Rank& rank, const std::vector<std::string>& compressors,
                              const std::vector<std::uint64_t>& max_parts);

/// Medians over the rounds; of each round, the slowest rank counts. Seconds.
struct Outcome {
  std::string problem;  ///< why it could not run, else empty
  bool failed = false;  ///< and that is not because it does not fit the ranks or the size
  double seconds = 0, best_dense = 0;
  double select = 0, exchange = 0, add = 0;
  std::uint64_t wire_bytes = 0, dense_wire_bytes = 0, kept = 0;
};

/// How long a measurement is.
struct Length {
  int rounds = 11;
  int settling = 96;  ///< calls before, until residual and bound have settled
};

/// One rank's gradients and clock.
class Race {
 public:
  explicit Race(Rank& rank) : rank_(rank) {}

  /// Collective. Every round runs every dense allreduce and the entrant, one after the other, each
  /// from a barrier on and with a new gradient, and each round begins with another one of them.
  Outcome run(const Entrant& entrant, std::size_t count, Length length);

 private:
  void reserve(std::size_t count);
  std::span<float> refill(std::size_t count);

  Rank& rank_;
  kernels::HostArray<float> pool_, gradient_;
  std::size_t shift_ = 0;
};

}  // namespace winnow::bench
