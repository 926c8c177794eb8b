// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/probe.hpp"

#include <gtest/gtest.h>

#include <vector>
#include <winnow/winnow.hpp>

#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"

namespace winnow::tests {
namespace {

/// Checks that all ranks have the model of rank 0, which it returns.
LinkModel expect_same_model(Transport& transport, const Topology& topology) {
  const LinkModel mine =
      comm::probe_links({transport, {}}, {transport, {}}, topology, Deadline::never());
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

// Nodes of unequal sizes: ranks of larger nodes measure within, first ranks measure between.
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

TEST(Probe, DenseSumsGoByTheRingFromItsSizeOn) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& inner) {
      const auto transport = std::make_shared<NativeTransport>(inner);
      AllReducer reducer(transport, {.compressor = "topk:0.1",
                                     .links = "intra=0s,1TB/s inter=0s,1TB/s ring=400kB",
                                     .op = ReduceOp::sum});
      for (const std::uint64_t count : {99'998U, 100'000U}) {
        std::vector<float> gradient(count, 1.0F);
        std::vector<double> plain(count / 2, 1.0);
        const auto expect_way = [&](const Elements& elements, std::uint64_t id) {
          transport->calls = 0;
          reducer.all_reduce(elements, id);
          const bool by_ring = elements.bytes().size() >= 400'000;
          const Stats last = reducer.last();
          EXPECT_EQ(transport->calls, by_ring ? 0U : 1U);
          EXPECT_EQ(last.schedule, "dense");
          EXPECT_EQ(last.reason.ends_with(", dense by Winnow's ring"), by_ring) << last.reason;
        };
        expect_way(gradient, count);
        expect_way(plain, count / 2);
        EXPECT_EQ(gradient.back(), static_cast<float>(transport->size()));
        EXPECT_EQ(plain.back(), static_cast<double>(transport->size()));
      }
    });
  }
}

}  // namespace
}  // namespace winnow::tests
