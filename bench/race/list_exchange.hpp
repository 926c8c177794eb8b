// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include <winnow/workspace.hpp>

#include "bench/micro/random_entries.hpp"
#include "bench/race/benchmarks.hpp"
#include "comm/schedule/exchange.hpp"
#include "comm/schedule/schedule.hpp"

namespace winnow::bench {

/// The shape of lists of k of `count` elements, one per rank, that become their union on all ranks.
struct ListShape {
  std::uint64_t count = 0, k = 0;
};

/// The part of a call between selection and the writing of the result: each rank's list becomes a
/// message, travels by `gather` or `doubling`, and ends in one list of sums, in the order that the
/// schedule documents (for `gather`, by merging messages in rank order).
class ListExchange {
 public:
  ListExchange(Rank& rank, const comm::Schedule& schedule, ListShape shape, int threads);

  /// Collective. Each round begins at a barrier; its slowest rank counts.
  Measured measure(int rounds);

 private:
  struct Spent {
    double seconds = 0;
    Stats stats;
  };

  Spent run_once(std::size_t lists, const std::function<void(const compress::MessageView&)>& look);
  std::string check();

  Rank& rank_;
  const comm::Schedule& schedule_;
  ListShape shape_;
  Workspace workspace_;
  Exec exec_;
  std::shared_ptr<Transport> transport_;
  std::vector<std::vector<float>> lists_;  // of this rank: indices, then values; rounds take turns
  std::uint64_t union_k_ = 0;              // entries of the union of the first lists
};

}  // namespace winnow::bench
