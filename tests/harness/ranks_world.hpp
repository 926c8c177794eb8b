// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>
#include <winnow/conformance/world.hpp>

#include "tests/harness/ranks.hpp"

namespace winnow::tests {

/// The ranks that run_bare_ranks runs over, for the checks of all transports.
inline conformance::World ranks_world() {
  return {.rank_counts = [] { return std::vector(rank_counts().begin(), rank_counts().end()); },
          .run = [](int ranks, const RankBody& body) { run_bare_ranks(ranks, body); },
          .names_ranks = true};
}

}  // namespace winnow::tests
