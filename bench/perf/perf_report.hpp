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

/// Calls that are all out of place, or all in place.
struct PerfHalf {
  double seconds = 0;  ///< of one call
  std::optional<std::uint64_t> wrong;
};

struct PerfRow {
  std::uint64_t size = 0, count = 0;  ///< bytes, elements
  std::string type, op;
  PerfHalf out_of_place, in_place;
  double wire_bytes = 0;  ///< of one call, of the busiest rank
  std::optional<double> error, lost;
  std::string schedule, coding;
};

/// A rank's process and machine, and the number of its GPU where buckets lie there, else -1.
struct PerfDevice {
  int pid = 0;
  std::string host;
  int number = -1;
};

/// Bytes over seconds, in 1e9; and the same as nccl-tests weighs it, so that it is what each rank's
/// link would carry in a ring.
double algorithm_bandwidth(const PerfRow& row, const PerfHalf& half);
double bus_bandwidth(const PerfRow& row, const PerfHalf& half, std::size_t ranks);

/// Of all halves of all rows.
double average_bus_bandwidth(const std::vector<PerfRow>& rows, std::size_t ranks);
std::uint64_t count_wrong(const std::vector<PerfRow>& rows);

void print_header(std::ostream& out, const PerfSettings& settings, bool is_mpi,
                  const std::vector<PerfDevice>& devices);
void print_row(std::ostream& out, const PerfRow& row, std::size_t ranks);
void print_footer(std::ostream& out, const std::vector<PerfRow>& rows, std::size_t ranks);

/// The same in the structure of nccl-tests' JSON files.
void write_json(std::ostream& out, const PerfSettings& settings,
                const std::vector<PerfDevice>& devices, const std::vector<PerfRow>& rows);

}  // namespace winnow::bench
