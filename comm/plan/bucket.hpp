// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/options.hpp>

#include "comm/plan/planner.hpp"
#include "comm/plan/segments.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/schedule/shards.hpp"
#include "compress/compressor.hpp"
#include "compress/part.hpp"
#include "compress/precondition.hpp"

namespace winnow::comm {

/// A part of a bucket and how it travels.
struct BucketPart {
  compress::Part part;
  const Schedule* schedule = nullptr;
  std::vector<std::size_t> segments;  ///< the segment of each piece
  Shards shards = {};                 ///< if the schedule has two levels
};

/// Who takes the elements of compressed parts as they are given, of 16 bits, too: nobody; any pass
/// of error feedback, of elements of one type that no precondition changes; or, where it selects,
/// of any. Nothing else reads them then but restore, and the final sum is written over them.
enum class AsGiven : std::uint8_t { nobody, pass, selection };

/// A plan in words, for statistics and logs.
struct PlanWords {
  std::string schedule = {};  ///< of its parts, joined by '+'
  std::string reason = {};
  std::string_view note = {};  ///< ring_note of its dense part, included in the reason
  std::string coding = {};     ///< of the first compressed part's messages
};

/// The predicted costs of a call.
struct PlanCosts {
  std::uint64_t wire_bytes = 0;        ///< that the busiest rank will send: Schedule::wire_bytes
  std::uint64_t dense_wire_bytes = 0;  ///< that the dense schedule would send
  double dense_seconds = 0;            ///< Stats::dense_seconds
  std::optional<double> enough = {};   ///< Choice::enough
};

/// An AllReducer's record of a bucket: its parts, their schedules and the reasons.
struct Bucket {
  std::uint64_t id = 0;           ///< hash of parameter ids, counts, element types and operation
  std::uint64_t plan = 0;         ///< hash of these and of how each segment travels
  std::uint64_t count = 0;        ///< elements
  std::vector<BucketPart> parts;  ///< compressed parts, then dense ones; none if plain
  const compress::Compressor* compressor = nullptr;  ///< of its messages; null if plain
  std::size_t compressed = 0;                        ///< number of compressed parts
  AsGiven as_given = AsGiven::nobody;
  PlanWords words = {};
  PlanCosts costs = {};
  std::size_t unit = sizeof(float);  ///< bytes of an element that travels dense
  std::size_t number = 0;  ///< in the order of first calls; assigned by StatsBook::register_bucket
  std::uint64_t ring = LinkModel::kNever;     ///< LinkModel::ring of its dense sums
  compress::ParameterState* table = nullptr;  ///< whose rows it sums, if that leaves a residual

  /// Whether exempt parameters travel beside compressed ones.
  bool mixed() const { return compressed > 0 && compressed < parts.size(); }
  /// Visits the state of each parameter that its calls change.
  template <class Visit>
  void for_each_state(const Visit& visit) const {
    for (const BucketPart& part : parts) {
      for (const compress::Piece& piece : part.part.pieces) visit(*piece.parameter);
    }
    if (table != nullptr) visit(*table);
  }
  /// Whether residuals may be of shards alone.
  bool has_two_levels() const {
    return std::ranges::any_of(
        parts, [](const BucketPart& part) { return part.schedule->inner != nullptr; });
  }
};

/// The most positions of a part in device memory: kernels there count to 2^31.
inline constexpr std::uint64_t kMostOnDevice = (std::uint64_t{1} << 31) - kernels::Partition::kUnit;

/// Why a whole bucket of `count` elements goes dense with any schedule, or empty.
std::string dense_reason(std::uint64_t count, const Options& options);

/// The source of residuals for buckets in `place`, by Options::residual_memory; null: the buckets'
/// own memory.
const MemorySource* residual_memory(const Options& options, Place place);

/// Cuts bucket `id`, whose segments have passed refuse(), into parts and plans each part.
/// Exempt parameters and short buckets go dense; the planner chooses for the rest. The plan depends
/// only on ids, counts, exemptions, options, topology and links; Bucket::plan names it. The rank
/// decides only what it owns. A parameter longer than a part is selected from in pieces. Allocates
/// the states in `parameters`.
Bucket plan_bucket(std::uint64_t id, std::span<const Segment> segments, const Options& options,
                   World world, const compress::Compressor& compressor,
                   ParameterStates& parameters);

/// Allocates what a bucket's parameters miss of the state that its calls need: residuals where it
/// travels compressed or in part so, what lies beside them, and moments.
void make_states(const Exec& exec, Bucket& bucket, const compress::Preconditioner& preconditioner);

/// Points the bucket's pieces at this call's segments, of float32 but as AsGiven says.
void view(Bucket& bucket, std::span<const Segment> segments);

}  // namespace winnow::comm
