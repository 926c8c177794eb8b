// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/probe.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/ranks.hpp"

namespace winnow::tests {
namespace {

/// Checks that all ranks have the model of rank 0, which it returns.
LinkModel expect_same_model(Transport& transport, const Topology& topology) {
  const LinkModel mine = comm::probe_links(transport, topology, {}, Deadline::never());
  std::vector<LinkModel> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather({}, std::as_bytes(std::span(&mine, 1)),
                       std::as_writable_bytes(std::span(all)), Deadline::never());
  EXPECT_EQ(mine, all.front());
  EXPECT_GT(mine.intra.beta, 0);
  EXPECT_GT(mine.inter.beta, 0);
  EXPECT_NE(mine.pass, LinkModel().pass);
  return mine;
}

TEST(Probe, WithinANodeLinksBetweenNodesKeepTheDefault) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const int size = transport->size();
      const LinkModel model = expect_same_model(*transport, Topology::uniform(1, size));
      EXPECT_EQ(model.intra == LinkModel().intra, size == 1);
      EXPECT_EQ(model.inter, LinkModel().inter);
    });
  }
}

// Nodes of unequal sizes: those of several ranks measure within, their first ranks between.
TEST(Probe, BetweenNodesTheirFirstRanksMeasure) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<int> node_of_rank(static_cast<std::size_t>(transport->size()));
      for (std::size_t r = 0; r < node_of_rank.size(); ++r) node_of_rank[r] = r == 0 ? 1 : 0;
      const Topology topology = Topology::from_nodes(node_of_rank);
      const LinkModel model = expect_same_model(*transport, topology);
      EXPECT_EQ(model.inter == LinkModel().inter, transport->size() == 1);
      EXPECT_EQ(model.intra == LinkModel().intra, transport->size() <= 2);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
