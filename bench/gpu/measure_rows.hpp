// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <span>
#include <string>

#include "bench/gpu/cuda_rows.hpp"
#include "kernels/cuda/stream.hpp"

namespace winnow::bench {

struct MeasureSettings {
  std::string device;
  std::size_t count = 0;  ///< elements
  int rounds = 51;
  std::size_t flush_bytes = 0;  ///< more than the L2 cache holds
  std::size_t from = 0;         ///< the first row
  std::string only;             ///< if not empty, only rows with this in their names
  unsigned row_seconds = 0;     ///< if not 0, SIGALRM ends the process when a row takes longer
  /// Files that results are appended to: a row is a line of JSON, or of a table. The name of a row
  /// is written before it is measured, so an unfinished line names the row that ended the process.
  std::string json, markdown;
};

enum class Measured { all, some_failed, device_lost };

/// Measures rows, one after the other, each beside rows[0], the device's copy: rounds alternate
/// (copy, row, copy, ...), so that a clock that rises or falls meets both. Prints the table to
/// `out`. A row that throws is marked as failed, and the next one follows unless the device takes
/// no more work.
Measured measure(kernels::cuda::StreamRef stream, std::span<const CudaRow> rows,
                 const MeasureSettings& settings, std::ostream& out);

}  // namespace winnow::bench
