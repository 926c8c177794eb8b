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

#include "comm/schedule.hpp"
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
};

/// What an AllReducer remembers of a bucket: its parts, their schedules and why.
struct Bucket {
  std::uint64_t id = 0;           ///< hash of parameter ids and counts
  std::uint64_t plan = 0;         ///< hash of these and of how each segment travels
  std::uint64_t count = 0;        ///< elements
  std::vector<BucketPart> parts;  ///< compressed ones before dense ones
  std::size_t compressed = 0;     ///< how many of them are compressed
  std::string schedule;           ///< of each part, joined by '+'
  std::string reason;
  std::uint64_t dense_wire_bytes = 0;  ///< what the dense schedule would put on the wire

  /// Exempt parameters travel beside compressed ones.
  bool mixed() const { return compressed > 0 && compressed < parts.size(); }
};

/// Names a bucket by the ids and counts of its segments, in their order.
std::uint64_t bucket_id(std::span<const Segment> segments);

/// What is wrong with a bucket by itself, or empty.
std::string refuse(std::span<const Segment> segments, const Parameters& parameters);

/// Cuts a bucket that refuse() found sound into parts and plans each: exempt parameters and
/// buckets that compression does not pay for go dense, the rest by the schedule of the options, or,
/// for "auto", by the one that puts the fewest bytes on the wire. A function of ids, counts,
/// exemptions, options and ranks alone, named by Bucket::plan. A parameter longer than
/// Options::max_part is selected from in pieces. Allocates the states (and residuals of what is
/// compressed) in `parameters`.
Bucket plan_bucket(std::span<const Segment> segments, const Options& options, int ranks,
                   const compress::Compressor& compressor, Parameters& parameters);

/// Points the pieces of a bucket at this call's segments.
void view(Bucket& bucket, std::span<const Segment> segments);

}  // namespace winnow::comm
