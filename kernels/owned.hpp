// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/partition.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::kernels {

// Values by local number of one owner, on their way to its positions. No operation needs
// scratch, and a CUDA graph can capture each. UsageError for wrong sizes.

/// The first *count entries of a list from `begin` on: in the memory of exec.place.
struct ListRun {
  std::uint64_t begin = 0;
  const std::uint64_t* count = nullptr;
};

/// The values, and the elements at their positions.
struct OwnedJob {
  Partition partition{1, 0};
  std::uint32_t owner = 0;
  Placed<PlacedSpan> pieces = {};  ///< ascending by base; a value of a position between them goes
                                   ///< nowhere
  Term values =
      {};  ///< a list by local number, or a value for each of them from 0 on; coded or not
  /// If not null, the number of entries in the list, read when the work runs: at most as many as it
  /// has room for. In the memory of exec.place.
  const std::uint64_t* count = nullptr;
  /// If not empty, the list is these runs, ascending by begin, each at most as long as to where the
  /// next one begins; what lies between them is not read. For store_owned alone.
  Placed<ListRun> runs = {};

  /// How many entries a run has, of a job in host memory.
  std::uint64_t run_size(std::size_t i) const {
    const std::uint64_t end = i + 1 < runs.host.size() ? runs.host[i + 1].begin : most();
    return std::min(*runs.host[i].count, end - runs.host[i].begin);
  }
  /// A run as a job of its own, of one in host memory.
  OwnedJob run(std::size_t i) const {
    OwnedJob job = *this;
    job.values.index = values.index.subspan(runs.host[i].begin, run_size(i));
    job.values.value = values.value.subspan(runs.host[i].begin, run_size(i));
    job.runs = {};
    return job;
  }
  /// How many values there are room for.
  std::uint64_t most() const { return values.coded.empty() ? values.value.size() : values.count; }
  /// How many there are, of a job in host memory.
  std::uint64_t size() const { return count == nullptr ? most() : std::min(*count, most()); }
};

/// element += value.
void add_owned(const Exec& exec, const OwnedJob& job);

/// element = value, if that is finite.
void store_owned(const Exec& exec, const OwnedJob& job);

/// The result of write_owned for values, as of ordered_sum.
struct OwnedWrite {
  float factor = 1;
  std::uint32_t* not_finite = nullptr;  ///< not null; becomes 1 if an element is not finite
  std::uint32_t* too_large = nullptr;   ///< as OrderedSumJob::too_large
  Rests rests = {};                     ///< as OrderedSumJob::rests
};

/// element = value * factor, rounded and clipped as by ordered_sum where elements have 16 bits.
void write_owned(const Exec& exec, const OwnedJob& job, const OwnedWrite& sums);

/// taken[j] = element, which becomes 0, at the positions of job.values; 0 if a position is of no
/// piece. The values themselves are not read: taken may be their memory.
void take_owned(const Exec& exec, const OwnedJob& job, std::span<float> taken);

/// element = value, bit for bit, at all positions of the pieces, ascending by base; rounded where
/// elements have 16 bits.
void fill_pieces(const Exec& exec, const Placed<PlacedSpan>& pieces, float value);

}  // namespace winnow::kernels
