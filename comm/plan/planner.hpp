// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <winnow/options.hpp>

#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "topology/link_model.hpp"

namespace winnow::comm {

/// The group of ranks that a plan is for, and which of them this one is.
struct World {
  int ranks = 1;
  int rank = 0;
  const Topology* topology = nullptr;  ///< of all of them; null: each rank is a node of its own
  LinkModel links = {};                ///< equal on all of them
  bool trials = false;                 ///< what is predicted to be close may be measured
  Place place = Place::cpu;            ///< where buckets lie
};

/// What `schedule` is among ranks of this topology (as in World): one in two levels has nothing to
/// add up where every rank is a node of its own, and is the schedule between nodes itself, which
/// sums the same without copies of the gradient and of residuals. Elsewhere `schedule`: on one node
/// of several ranks, too, what is selected from is the node's sum.
const Schedule& schedule_among(const Schedule& schedule, const Topology* topology);

/// Seconds of one part by a schedule, if nothing overlaps: the busiest node's bytes over its
/// uplink, the busiest rank's within a node, a latency for each message, and the passes over
/// memory. Where ranks have ports of their own between nodes, or share one within, so are the bytes
/// of one counted.
double estimate_seconds(const Schedule& schedule, const CostShape& shape, const LinkModel& links);

/// The same of a bucket that travels in the parts of longest_part: of all parts but one, what takes
/// less, passes or messages, hides behind what takes more.
double estimate_in_parts(const Schedule& schedule, const CostShape& shape, const World& world,
                         const compress::Compressor& compressor);

/// What a plan's reason says more where a dense sum of so many bytes goes by LinkModel::ring.
std::string_view ring_note(const LinkModel& links, std::uint64_t bytes);

/// A schedule and why it was chosen.
struct Choice {
  const Schedule* schedule;  ///< as schedule_among() says
  std::string reason;
  bool close = false;  ///< to dense, by prediction, so that only a measurement could tell
};

/// What Options::schedule says for a bucket whose parts have `shapes`. "auto" takes the schedule of
/// the least seconds, but dense unless another is clearly ahead, for models err, or where
/// World::trials lets it be tried out; "two_level" that of the least seconds among those of two
/// levels; "least_bytes" the one with the fewest bytes of the busiest rank, those that leave a node
/// counting more. Where any_k, both take dense: nobody knows beforehand what would travel. A
/// function of its arguments alone. Throws UsageError where the schedule named cannot take what the
/// compressor keeps.
Choice choose_schedule(const Options& options, std::span<const CostShape> shapes,
                       const World& world, const compress::Compressor& compressor);

/// Messages that one rank can send for a bucket, all of its parts and rails together.
constexpr std::size_t kMaxParts = 65536;

/// The longest part, in elements, of a bucket of `count` where Options::max_part leaves it open.
/// Between nodes a bucket travels in parts, so that one is selected and added while another is on
/// its way: of 2^20 elements, or of more, a power of two, where messages would fall below 16 KiB or
/// parts be too many. Within one node buckets stay whole.
std::uint64_t longest_part(const Schedule& schedule, const World& world,
                           const compress::Compressor& compressor, std::uint64_t count);

}  // namespace winnow::comm
