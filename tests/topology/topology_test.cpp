// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/topology.hpp>

namespace winnow {
namespace {

std::vector<int> members(const Topology& topology, int node) {
  const std::span<const int> ranks = topology.members(node);
  return {ranks.begin(), ranks.end()};
}

std::string refusal(std::string_view text) {
  try {
    (void)Topology::parse(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Topology, UniformNumbersRanksNodeByNode) {
  const Topology topology = Topology::uniform(2, 4);
  EXPECT_EQ(topology.ranks(), 8);
  EXPECT_EQ(topology.nodes(), 2);
  EXPECT_EQ(topology.rails(), 4);
  EXPECT_TRUE(topology.is_uniform());
  EXPECT_EQ(topology.to_string(), "2x4");
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(topology.node_of(rank), rank / 4);
    EXPECT_EQ(topology.local_rank(rank), rank % 4);
  }
  EXPECT_EQ(members(topology, 1), (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(topology.rail(2), (std::vector{2, 6}));
}

TEST(Topology, ParsesItsThreeForms) {
  EXPECT_EQ(Topology::parse("2x4"), Topology::uniform(2, 4));
  EXPECT_EQ(Topology::parse("5"), Topology::uniform(1, 5));
  EXPECT_EQ(Topology::parse("1"), Topology::uniform(1, 1));
  EXPECT_EQ(Topology::parse("2,2"), Topology::uniform(2, 2));
  EXPECT_EQ(Topology::parse("3,1,2"), Topology::from_nodes(std::array{0, 0, 0, 1, 2, 2}));
  EXPECT_NE(Topology::parse("3,1,2"), Topology::parse("3,2,1"));
}

TEST(Topology, ToStringIsReadBack) {
  for (const char* text : {"1x1", "1x5", "5x1", "2x4", "3,1,2", "1,2"}) {
    EXPECT_EQ(Topology::parse(text).to_string(), text);
  }
}

TEST(Topology, UnequalNodesHaveTheRailsOfTheLargest) {
  const Topology topology = Topology::parse("3,1,2");
  EXPECT_FALSE(topology.is_uniform());
  EXPECT_EQ(topology.rails(), 3);
  EXPECT_EQ(topology.ranks_on(0), 3);
  EXPECT_EQ(topology.ranks_on(1), 1);
  EXPECT_EQ(topology.ranks_on(2), 2);
  EXPECT_EQ(topology.rail(0), (std::vector{0, 3, 4}));
  EXPECT_EQ(topology.rail(1), (std::vector{1, 3, 5}));
  EXPECT_EQ(topology.rail(2), (std::vector{2, 3, 4}));  // node j's rank 2 mod its size
}

TEST(Topology, NodesAreNumberedByTheirLowestRank) {
  // Any numbers, and ranks dealt out in turn.
  const Topology topology = Topology::from_nodes(std::array{70, -3, 70, 5, -3});
  EXPECT_EQ(topology.nodes(), 3);
  EXPECT_EQ(members(topology, 0), (std::vector{0, 2}));
  EXPECT_EQ(members(topology, 1), (std::vector{1, 4}));
  EXPECT_EQ(members(topology, 2), (std::vector{3}));
  EXPECT_EQ(topology.local_rank(4), 1);
  EXPECT_EQ(topology.rail(1), (std::vector{2, 4, 3}));
  EXPECT_EQ(topology.to_string(), "2,2,1");

  const Topology in_turn = Topology::from_nodes(std::array{0, 1, 0, 1});
  EXPECT_FALSE(in_turn.is_uniform());  // equal nodes, but not consecutive
  EXPECT_EQ(in_turn.to_string(), "2,2");
  EXPECT_FALSE(Topology::from_nodes(std::array{0, 0, 1, 1, 2}).is_uniform());
}

TEST(Topology, RefusesWhatItCannotReadAndNamesTheForms) {
  for (const char* text : {"",
                           "x",
                           "2x",
                           "x4",
                           "0x4",
                           "2x0",
                           "-1",
                           "+2",
                           "2x-4",
                           "2x4x1",
                           "3,,1",
                           ",",
                           "3,",
                           ",3",
                           "3,0",
                           "3, 1",
                           " 2x4",
                           "2x4 ",
                           "2X4",
                           "two",
                           "1e3",
                           "2x4,1",
                           "99999999999999999999",
                           "2147483648",
                           "16777217",
                           "65536x65536",
                           "2147483647x2147483647",
                           "16777216,1"}) {
    const std::string message = refusal(text);
    std::string quoted = text;
    quoted.insert(quoted.begin(), '"');
    quoted.push_back('"');
    EXPECT_NE(message.find(quoted), std::string::npos) << text << " -> " << message;
    EXPECT_NE(message.find("3,1,2"), std::string::npos) << text << " -> " << message;
  }
}

TEST(Topology, RefusesImpossibleShapes) {
  EXPECT_THROW((void)Topology::uniform(0, 4), UsageError);
  EXPECT_THROW((void)Topology::uniform(2, -1), UsageError);
  EXPECT_THROW((void)Topology::uniform(1 << 16, 1 << 16), UsageError);
  EXPECT_THROW((void)Topology::from_nodes({}), UsageError);
}

TEST(Topology, RefusesRanksNodesAndRailsItDoesNotHave) {
  const Topology topology = Topology::parse("3,1");
  for (const int rank : {-1, 4}) {
    EXPECT_THROW((void)topology.node_of(rank), UsageError);
    EXPECT_THROW((void)topology.local_rank(rank), UsageError);
  }
  for (const int node : {-1, 2}) {
    EXPECT_THROW((void)topology.ranks_on(node), UsageError);
    EXPECT_THROW((void)topology.members(node), UsageError);
  }
  for (const int rail : {-1, 3}) {
    EXPECT_THROW((void)topology.rail(rail), UsageError);
  }
}

}  // namespace
}  // namespace winnow
