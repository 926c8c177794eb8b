// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/perf/perf_settings.hpp"

namespace winnow::bench {

/// Either all out-of-place calls, or all in-place calls.
struct PerfHalf {
  double seconds = 0;                  ///< per call
  std::optional<std::uint64_t> wrong;  ///< of the last of the timed calls, unless compressed
  std::string schedule;                ///< of the timed calls; joined by '|' if they differ

  void add_schedule(const std::string& one);
  bool has_schedule(const std::string& one) const;
};

struct PerfRow {
  std::uint64_t size = 0, count = 0;  ///< bytes, elements
  bool scatters = false;              ///< of a reduce-scatter, by its input
  std::string type, op;
  PerfHalf out_of_place, in_place;
  double wire_bytes = 0;              ///< per call, by the busiest rank
  std::optional<double> error, lost;  ///< of a compressed schedule that is shown
  std::string coding;
  std::string timestamp;  ///< when the row was complete
};

/// A rank's process and machine, and its GPU's number if buckets lie there, else -1.
struct PerfDevice {
  int pid = 0;
  std::string host;
  int number = -1;
};

/// Bytes per second in units of 1e9; and the same with nccl-tests' weight, so that it is the rate
/// of each rank's link in a ring.
double algorithm_bandwidth(const PerfRow& row, const PerfHalf& half);
double bus_bandwidth(const PerfRow& row, const PerfHalf& half, std::size_t ranks);

/// Over all halves of all rows.
double average_bus_bandwidth(const std::vector<PerfRow>& rows, std::size_t ranks);
std::uint64_t count_wrong(const std::vector<PerfRow>& rows);

void print_header(std::ostream& out, const PerfSettings& settings, bool is_mpi,
                  const std::vector<PerfDevice>& devices);
void print_row(std::ostream& out, const PerfSettings& settings, const PerfRow& row,
               std::size_t ranks);
void print_footer(std::ostream& out, const std::vector<PerfRow>& rows, std::size_t ranks);

/// Writes the table in the structure of nccl-tests' JSON files.
void write_json(std::ostream& out, const PerfSettings& settings,
                const std::vector<PerfDevice>& devices, const std::vector<PerfRow>& rows);

}  // namespace winnow::bench
