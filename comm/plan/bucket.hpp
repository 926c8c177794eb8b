// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/options.hpp>

#include "comm/plan/planner.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/schedule/shards.hpp"
#include "compress/compressor.hpp"
#include "compress/part.hpp"

namespace winnow::comm {

/// State of every parameter by its id.
using Parameters = std::unordered_map<std::uint64_t, compress::ParameterState>;

/// A part of a bucket and how it travels.
struct BucketPart {
  compress::Part part;
  const Schedule* schedule = nullptr;
  std::vector<std::size_t> segments;  ///< the segment of each piece
  Shards shards = {};                 ///< where the schedule has two levels
};

/// What an AllReducer remembers of a bucket: its parts, their schedules and why.
struct Bucket {
  std::uint64_t id = 0;           ///< hash of parameter ids, counts, element types and operation
  std::uint64_t plan = 0;         ///< hash of these and of how each segment travels
  std::uint64_t count = 0;        ///< elements
  std::vector<BucketPart> parts;  ///< compressed ones before dense ones
  std::size_t compressed = 0;     ///< how many of them are compressed
  std::string schedule;           ///< of its parts, joined by '+'
  std::string reason;
  std::string_view note;               ///< ring_note of its dense part, in the reason
  std::string coding;                  ///< of the first compressed part's messages
  std::uint64_t wire_bytes = 0;        ///< what the busiest rank will send, by Schedule::wire_bytes
  std::uint64_t dense_wire_bytes = 0;  ///< what the dense schedule would put on the wire
  std::size_t number = 0;              ///< in the order of first calls; StatsBook::meet counts
  bool close = false;                  ///< Choice::close
  bool plain = false;  ///< no sum of gradients: it has no parts, see comm/reducer/plain.hpp

  /// Exempt parameters travel beside compressed ones.
  bool mixed() const { return compressed > 0 && compressed < parts.size(); }
};

/// Whether elements are those of gradients, which may travel compressed.
constexpr bool is_gradient(ElementType type) {
  return type <= ElementType::fp16;
}

/// How messages spell a type.
std::string_view name_of(ElementType type);

/// Names a bucket by the ids, counts and element types of its segments, in their order, and by what
/// is made of them. A bucket whose inputs are wrong has another name: no call can have met it.
std::uint64_t bucket_id(std::span<const Segment> segments, ReduceOp op);

/// What is wrong with a bucket by itself, or empty. Parameters of plain ones need not be known.
std::string refuse(std::span<const Segment> segments, const Parameters& parameters, bool plain);

/// What is wrong with where a bucket lies, or empty.
std::string refuse_memory(std::span<const Segment> segments, Place place);

/// Where residuals of buckets in `place` lie, by Options::residual_memory; null: where these do.
const MemorySource* residual_memory(const Options& options, Place place);

/// Cuts bucket `id` of float32 segments that refuse() found sound into parts and plans each: exempt
/// parameters and short buckets go dense, the rest by the planner's choice. A function of ids,
/// counts, exemptions, options, topology and links alone, named by Bucket::plan. A parameter longer
/// than a part is selected from in pieces. The rank decides only what it owns. Allocates the states
/// in `parameters`.
Bucket plan_bucket(std::uint64_t id, std::span<const Segment> segments, const Options& options,
                   World world, const compress::Compressor& compressor, Parameters& parameters);

/// Allocates the residuals of what is compressed, where there are none, and what lies beside them.
void make_residuals(const Exec& exec, Bucket& bucket);

/// Points the pieces of a bucket at this call's segments, all of float32.
void view(Bucket& bucket, std::span<const Segment> segments);

}  // namespace winnow::comm
