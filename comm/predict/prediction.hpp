// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>
#include <winnow/options.hpp>
#include <winnow/topology.hpp>

#include "comm/schedule/schedule.hpp"
#include "comm/transport/simulated/simulated.hpp"
#include "topology/link_model.hpp"

namespace winnow::comm {

/// One call that is to be predicted: of one float32 parameter, after the first step.
struct Scenario {
  Topology topology = Topology::uniform(1, 1);
  LinkModel links = {};
  std::uint64_t count = 0;  ///< elements, below Options::kMaxPart
  std::string compressor = "topk:0.01";
  std::string schedule = "balanced";             ///< as in Options
  std::uint64_t max_part = Options::kAutomatic;  ///< as in Options
  bool trace = false;
};

/// What all ranks did between two stops of a schedule, which end a round.
struct RoundOfPrediction {
  std::uint64_t messages = 0;                     ///< of all ranks
  std::uint64_t least_bytes = 0, most_bytes = 0;  ///< that a rank sent
  double begin = 0, end = 0;  ///< virtual seconds: the first rank begins, the last one is done
};

struct Prediction {
  const Schedule* schedule = nullptr;     ///< that the scenario's leaves among its topology
  std::string reason;                     ///< why that one
  double seconds = 0;                     ///< of the slowest rank
  std::uint64_t wire_bytes = 0;           ///< of the busiest rank
  std::uint64_t uplink_bytes = 0;         ///< that leave the busiest node
  std::uint64_t k = 0;                    ///< elements that rank 0 keeps of its gradient, or of its
                                          ///< node's sum
  std::uint64_t parts = 1;                ///< that the bucket travels as
  std::vector<RoundOfPrediction> rounds;  ///< of a bucket in one part, none of `dense`
  std::vector<SimulatedTransfer> transfers;  ///< in order of `begin`, where asked for
};

/// Runs the schedule's own code over simulated ranks that exchange nothing but sizes. Supports are
/// taken as spread evenly. Throws UsageError where the scenario makes no sense.
Prediction predict(const Scenario& scenario);

}  // namespace winnow::comm
