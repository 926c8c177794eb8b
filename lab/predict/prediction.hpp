// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>
#include <winnow/options.hpp>
#include <winnow/topology.hpp>

#include "comm/schedule/schedule.hpp"
#include "lab/simulated/simulated.hpp"
#include "topology/link_model.hpp"

namespace winnow::comm {

/// The call to predict: one float32 parameter, after the first step.
struct Scenario {
  Topology topology = Topology::uniform(1, 1);
  LinkModel links = {};
  std::uint64_t count = 0;  ///< elements, below Options::kMaxPart
  std::string compressor = "topk:0.01";
  std::string schedule = "balanced";             ///< as in Options
  std::uint64_t max_part = Options::kAutomatic;  ///< as in Options
  bool trace = false;
};

/// The work of all ranks between two stops of a schedule; each stop ends a round.
struct RoundOfPrediction {
  std::uint64_t messages = 0;                     ///< of all ranks
  std::uint64_t least_bytes = 0, most_bytes = 0;  ///< the least and the most that one rank sent
  double begin = 0, end = 0;  ///< virtual seconds, from the first rank's begin to the last rank's
                              ///< end
};

struct Prediction {
  const Schedule* schedule = nullptr;  ///< chosen for the scenario and its topology
  std::string reason;                  ///< why this schedule
  double seconds = 0;                  ///< until the slowest rank is done
  std::uint64_t wire_bytes = 0;        ///< sent by the busiest rank
  std::uint64_t uplink_bytes = 0;      ///< leaving the busiest node
  std::uint64_t messages = 0;          ///< sent by the busiest rank
  std::uint64_t k = 0;      ///< elements that rank 0 keeps of its gradient or its node's sum
  std::uint64_t parts = 1;  ///< of the bucket
  std::vector<RoundOfPrediction> rounds;     ///< only for a bucket in one part; none for `dense`
  std::vector<SimulatedTransfer> transfers;  ///< by `begin`; only if `trace` is set
};

/// Runs the schedule's own code over simulated ranks that exchange only sizes. Assumes that
/// supports are spread evenly. Throws UsageError if the scenario makes no sense.
Prediction predict(const Scenario& scenario);

/// The same by the planner's formulas, which take no longer for more ranks: no rounds and no
/// transfers, and max_part must be automatic. Seconds are rougher: each message of a rank takes the
/// latency of its link, where simulated ones of a round are under way together. And messages of
/// dense sums and of two levels are those that follow each other, fewer than are sent.
Prediction estimate(const Scenario& scenario);

}  // namespace winnow::comm
