// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <winnow/options.hpp>

#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "topology/link_model.hpp"

namespace winnow::comm {

/// The group of ranks that a plan is for, and this rank's place in it.
struct World {
  int ranks = 1;
  int rank = 0;
  const Topology* topology = nullptr;  ///< of all ranks; null: each rank is a node of its own
  LinkModel links = {};                ///< equal on all ranks
  bool trials = false;                 ///< whether predictions may be overruled by measuring
  Place place = Place::host;           ///< where buckets lie
  bool one_of_many = false;            ///< see OneOfMany: one rank that works as each of many
};

/// `schedule` as it runs on this topology (see World). If every rank is a node of its own, a
/// two-level schedule has nothing to add within nodes: this returns its schedule between nodes,
/// which gives the same sums without copies of the gradient and residuals. Otherwise it returns
/// `schedule`, also for one node of several ranks, since selection then works on the node's sum.
const Schedule& schedule_among(const Schedule& schedule, const Topology* topology);

/// Seconds of one part by a schedule without overlap: the busiest node's bytes over its uplink, the
/// busiest rank's bytes within a node, a latency for each message, and the passes over memory.
/// Counts one rank's bytes between nodes if ranks have their own ports there, and a whole node's
/// bytes within a node if its ranks share one port.
double estimate_seconds(const Schedule& schedule, const CostShape& shape, const LinkModel& links);

/// Seconds of a bucket that travels in the parts of longest_part. For all parts but one, the
/// shorter of passes and messages hides behind the longer.
double estimate_in_parts(const Schedule& schedule, const CostShape& shape, const World& world,
                         const compress::Compressor& compressor);

/// The addition to a plan's reason if LinkModel::ring sends a dense sum of this many bytes.
std::string_view ring_note(const LinkModel& links, std::uint64_t bytes);

/// A schedule and why it was chosen.
struct Choice {
  const Schedule* schedule;  ///< as returned by schedule_among()
  std::string reason;
  /// Set if calls by it are to be timed first: dense is tried, too, if they take more than so many
  /// seconds.
  std::optional<double> enough = {};
};

/// The reason for dense where nothing travels, whatever the schedule.
inline constexpr std::string_view kOneRank = "there is one rank alone";

/// Applies Options::schedule to a bucket whose parts have `shapes`. One rank alone is dense, by any
/// schedule, so that its sums are exact. "auto" takes the fastest
/// schedule, but dense unless another is clearly faster (models err) or World::trials allows a
/// trial. "two_level" takes the fastest of the two-level schedules. "least_bytes" takes the fewest
/// bytes from the busiest rank, with extra weight on bytes that leave a node. If variable_k, "auto"
/// and "least_bytes" take dense, since nobody knows in advance how much would travel. Depends only
/// on its arguments. Throws UsageError if the named schedule cannot take what the compressor keeps.
Choice choose_schedule(const Options& options, std::span<const CostShape> shapes,
                       const World& world, const compress::Compressor& compressor);

/// The most messages that one rank can send for a bucket, over all parts and rails.
constexpr std::size_t kMaxParts = 65536;

/// The longest part, in elements, of a bucket of `count` if Options::max_part leaves it open.
/// Between nodes a bucket travels in parts, so that one part is selected or added while another
/// travels. A part has 2^20 elements, or a larger power of two if messages would be shorter than 16
/// KiB or parts too many. Within one node a bucket stays whole.
std::uint64_t longest_part(const Schedule& schedule, const World& world,
                           const compress::Compressor& compressor, std::uint64_t count);

}  // namespace winnow::comm
