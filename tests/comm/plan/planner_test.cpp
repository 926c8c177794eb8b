// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/planner.hpp"

#include <gtest/gtest.h>

#include <winnow/error.hpp>

#include "comm/plan/bucket.hpp"
#include "comm/schedule/schedule.hpp"
#include "lab/predict/prediction.hpp"
#include "tests/harness/schedules.hpp"

namespace winnow::tests {
namespace {

using comm::Choice;
using comm::CostShape;
using comm::World;

constexpr std::uint64_t kCount = 25'600'000;

Choice choose(const Topology& topology, const char* links, const char* compressor,
              const char* schedule = "auto", std::uint64_t count = kCount, bool trials = false) {
  const auto made = compress::make_compressor(compressor);
  const World world{topology.ranks(), 0, &topology, LinkModel::parse(links), trials};
  const CostShape shape{topology.ranks(), count, made->kept(count), made->codings(), &topology};
  return choose_schedule({.compressor = compressor, .schedule = schedule}, {&shape, 1}, world,
                         *made);
}

std::string_view chosen(const Choice& choice) {
  return choice.schedule->name;
}

constexpr const char* kSlow = "inter=50us,100Mbit/s intra=1us,10GB/s pass=10GB/s";
constexpr const char* kFast = "inter=1us,400GB/s intra=1us,400GB/s pass=10GB/s";

TEST(Planner, CompressesWhereLinksAreSlow) {
  const Choice choice = choose(Topology::uniform(8, 1), kSlow, "topk:0.01");
  EXPECT_EQ(chosen(choice), "balanced");
  EXPECT_EQ(choice.reason.find("predicted to take "), 0U) << choice.reason;
}

TEST(Planner, GoesDenseWhereMemoryIsSlowerThanLinks) {
  for (const char* compressor : {"topk:0.01", "int8", "topk:0.01,int4"}) {
    for (const int nodes : {1, 4}) {
      const Choice choice = choose(Topology::uniform(nodes, 8 / nodes), kFast, compressor);
      EXPECT_EQ(chosen(choice), "dense") << choice.reason;
      EXPECT_NE(choice.reason.find("by dense"), std::string::npos) << choice.reason;
    }
  }
}

TEST(Planner, TimesWhatItChoosesBeforeItTrustsThat) {
  const Topology topology = Topology::uniform(8, 1);
  const auto enough = [&](const char* links, std::uint64_t count, bool trials) {
    return choose(topology, links, "topk:0.01", "auto", count, trials).enough;
  };
  // Dense sends 7/4 of 102.4 MB, in 14.3 s, so compressed calls of a quarter of that will do.
  EXPECT_NEAR(enough(kSlow, kCount, true).value_or(0), 14.3 / 4, 0.1);
  // Dense takes few milliseconds, or nearly as long as the other: it is tried in any case.
  EXPECT_EQ(enough("inter=1us,1GB/s intra=1us,10GB/s pass=10GB/s", 1'000'000, true), 0.0);
  EXPECT_EQ(enough("inter=1us,4GB/s intra=1us,10GB/s pass=10GB/s", kCount, true), 0.0);
  // It is chosen, or nothing is to be timed.
  EXPECT_FALSE(enough(kFast, kCount, true));
  EXPECT_FALSE(enough(kSlow, kCount, false));
}

TEST(Planner, NodesOfSeveralRanksSpareTheNetwork) {
  EXPECT_EQ(chosen(choose(Topology::uniform(8, 8), kSlow, "topk:0.01")), "two_level:balanced");
}

TEST(Planner, LatencyDecidesWhereBytesAreFew) {
  // 64 ranks, 20,000 elements: 6 messages one after another, or 63 and more.
  const char* const far = "inter=1ms,10GB/s intra=1us,10GB/s pass=10GB/s";
  const Choice choice = choose(Topology::uniform(64, 1), far, "topk:0.01", "auto", 20'000);
  EXPECT_EQ(chosen(choice), "doubling") << choice.reason;
}

// In two levels the sum of all nodes is a list, which one level of as many ranks does not make.
TEST(Planner, WhoSendsASumOnMakesAListOfIt) {
  const comm::CostShape four{.ranks = 4, .count = kCount, .k = kCount / 100};
  comm::CostShape nodes = four;
  nodes.one_outcome = true;
  const double merge = comm::kDoubling.pass_bytes(nodes) - comm::kDoubling.pass_bytes(four);
  const Topology topology = Topology::uniform(4, 2);
  comm::CostShape two_levels = four;
  two_levels.ranks = 8;
  two_levels.topology = &topology;
  const double in_nodes = 12.0 * static_cast<double>(kCount);  // the sums of nodes
  EXPECT_GT(merge, 0);
  EXPECT_EQ(comm::kTwoLevelDoubling.pass_bytes(two_levels),
            in_nodes + comm::kDoubling.pass_bytes(four) + merge);
}

TEST(Planner, ParametersCostMoreThanTheirElements) {
  const Topology topology = Topology::uniform(4, 1);
  const auto made = compress::make_compressor("topk:0.01");
  CostShape shape{4, kCount, made->kept(kCount), made->codings(), &topology};
  const World world{4, 0, &topology,
                    LinkModel::parse("inter=50us,10Gbit/s intra=1us,10GB/s pass=10GB/s")};
  const auto reasoned = [&] {
    return choose_schedule({.compressor = "topk:0.01"}, {&shape, 1}, world, *made);
  };
  EXPECT_NE(chosen(reasoned()), "dense") << reasoned().reason;
  shape.parameters = kCount / 100;
  EXPECT_EQ(chosen(reasoned()), "dense") << reasoned().reason;
}

TEST(Planner, ABucketTellsHowManyParametersItHas) {
  const World world{2, 0, nullptr, LinkModel::parse(kSlow)};
  const auto made = compress::make_compressor("topk:0.01");
  const auto reasoned = [&](std::size_t parameters) {
    std::vector<float> elements(1'000'000);
    std::vector<Segment> segments(parameters);
    const std::size_t each = elements.size() / parameters;
    for (std::size_t i = 0; i < parameters; ++i) {
      segments[i] = {.elements = std::span(elements).subspan(i * each, each), .id = i};
    }
    comm::ParameterStates states;
    return comm::plan_bucket(1, segments, {.compressor = "topk:0.01"}, world, *made, states)
        .words.reason;
  };
  EXPECT_NE(reasoned(1), reasoned(1000));
}

TEST(Planner, ALoneRankHasNothingToGain) {
  for (const char* schedule : {"auto", "least_bytes", "gather", "balanced", "doubling", "shared",
                               "dense", "two_level", "two_level:gather"}) {
    const Choice choice = choose(Topology::uniform(1, 1), kSlow, "topk:0.01", schedule);
    EXPECT_EQ(chosen(choice), "dense") << schedule;
    EXPECT_EQ(choice.reason, "there is one rank alone") << schedule;
    EXPECT_FALSE(choice.enough) << schedule;
  }
  EXPECT_THROW((void)choose(Topology::uniform(1, 1), kSlow, "threshold", "shared"), UsageError);
}

TEST(Planner, WhatSendsEverythingAsItIsGoesDense) {
  EXPECT_EQ(chosen(choose(Topology::uniform(2, 1), kSlow, "none")), "dense");
  EXPECT_EQ(choose(Topology::uniform(2, 1), kSlow, "none").reason, "none sends everything");
}

TEST(Planner, WhatKeepsAnyNumberIsNotPredicted) {
  for (const char* schedule : {"auto", "least_bytes"}) {
    const Choice choice = choose(Topology::uniform(4, 1), kSlow, "threshold", schedule);
    EXPECT_EQ(chosen(choice), "dense");
    EXPECT_NE(choice.reason.find("threshold:0 keeps is up to the gradient"), std::string::npos)
        << choice.reason;
  }
  EXPECT_EQ(chosen(choose(Topology::uniform(4, 1), kSlow, "threshold", "gather")), "gather");
  EXPECT_THROW((void)choose(Topology::uniform(4, 1), kSlow, "threshold", "shared"), UsageError);
}

TEST(Planner, AShareOfTheSumsIsForSchedulesThatChooseAmongThem) {
  for (const char* schedule : {"shared", "two_level:shared"}) {
    EXPECT_THROW((void)choose(Topology::uniform(4, 2), kSlow, "topk:0.01:sums=0.1", schedule),
                 UsageError);
  }
}

TEST(Planner, ValuesOfOneSignGoWhereNoSumsAreCoded) {
  const Topology topology = Topology::uniform(16, 2);
  for (const char* schedule : {"balanced", "shared", "two_level:balanced", "two_level:shared"}) {
    EXPECT_THROW((void)choose(topology, kSlow, "topk:0.01,mean", schedule), UsageError) << schedule;
  }
  for (const char* schedule : {"gather", "doubling", "two_level:gather", "two_level:doubling"}) {
    EXPECT_EQ(chosen(choose(topology, kSlow, "topk:0.01,mean", schedule)), schedule);
  }
  for (const char* schedule : {"auto", "least_bytes", "two_level"}) {
    EXPECT_TRUE(choose(topology, kSlow, "topk:0.01,sign", schedule).schedule->codes_sums());
    const Choice choice = choose(topology, kSlow, "topk:0.01,mean", schedule);
    EXPECT_FALSE(choice.schedule->codes_sums());
    EXPECT_NE(chosen(choice), "dense");
  }
}

TEST(Planner, OptionsLeaveItLessToChoose) {
  const Topology topology = Topology::uniform(4, 2);
  EXPECT_EQ(choose(topology, kFast, "topk:0.01", "balanced").reason, "schedule=balanced");
  EXPECT_NE(choose(topology, kFast, "topk:0.01", "two_level").schedule->inner, nullptr);
  EXPECT_EQ(choose(topology, kFast, "topk:0.01", "least_bytes").reason, "fewest bytes on the wire");
}

TEST(Planner, OneRankOnEveryNodeLeavesTheScheduleBetweenThem) {
  for (const char* text : {"2x1", "8x1", "1x4", "2x2", "2,1"}) {
    SCOPED_TRACE(text);
    const Topology topology = Topology::parse(text);
    const bool alone = topology.ranks() == topology.nodes();
    const std::string note = alone ? ", one rank on every node" : "";
    for (const std::string& inner : inner_schedule_names()) {
      const std::string named = "two_level:" + inner;
      const Choice choice = choose(topology, kSlow, "topk:0.01", named.c_str());
      EXPECT_EQ(chosen(choice), alone ? inner : named);
      EXPECT_EQ(choice.reason, std::string("schedule=").append(named).append(note));
    }
    const Choice fastest = choose(topology, kSlow, "topk:0.01", "two_level");
    EXPECT_EQ(fastest.schedule->inner == nullptr, alone);
    EXPECT_EQ(fastest.reason.find("schedule=two_level" + note + ", predicted to take "), 0U)
        << fastest.reason;
    EXPECT_THROW((void)choose(topology, kSlow, "threshold", "two_level:shared"), UsageError);
  }
}

// Half the speed takes twice the time on the links that dominate.
TEST(Planner, SecondsFollowTheSlowestLevel) {
  const Topology topology = Topology::uniform(4, 2);
  const auto made = compress::make_compressor("topk:0.01");
  const CostShape shape{8, kCount, made->kept(kCount), made->codings(), &topology};
  for (const comm::Schedule* each : comm::schedules()) {
    const comm::Schedule& schedule = *each;
    const auto seconds = [&](const char* links) {
      return estimate_seconds(schedule, shape, LinkModel::parse(links));
    };
    const double one = seconds("inter=0us,1Mbit/s intra=0us,1TB/s pass=1TB/s");
    EXPECT_NEAR(seconds("inter=0us,500kbit/s intra=0us,1TB/s pass=1TB/s"), 2 * one, 0.01 * one)
        << schedule.name;
    EXPECT_NEAR(one, 8e-6 * static_cast<double>(schedule.network_bytes(shape)), 0.01 * one)
        << schedule.name;
    const double pass = seconds("inter=0us,1TB/s intra=0us,1TB/s pass=1GB/s");
    EXPECT_NEAR(seconds("inter=0us,1TB/s intra=0us,1TB/s pass=500MB/s"), 2 * pass, 0.02 * pass)
        << schedule.name;
  }
}

// Compares with a simulation of the messages, which models ports; the planner adds up times.
TEST(Planner, RanksThatShareAPortWaitForEachOther) {
  const auto made = compress::make_compressor("topk:0.01");
  const auto expect_simulated = [&](const Topology& topology, const char* links) {
    const CostShape shape{topology.ranks(), kCount, made->kept(kCount), made->codings(), &topology};
    for (const char* schedule : {"dense", "gather", "balanced"}) {
      const LinkModel model = LinkModel::parse(links);
      const double estimated = estimate_seconds(comm::find_schedule(schedule), shape, model);
      const double simulated =
          comm::predict({topology, model, kCount, "topk:0.01", schedule, Options::kMaxPart})
              .seconds;
      EXPECT_NEAR(estimated, simulated, 0.15 * simulated)
          << schedule << " on " << topology.to_string() << ", " << links;
    }
  };
  const Topology node = Topology::uniform(1, 8), nodes = Topology::uniform(4, 8);
  expect_simulated(node, "intra=0us,10MB/s,per-rank pass=1TB/s");
  expect_simulated(node, "intra=0us,10MB/s,per-node pass=1TB/s");
  expect_simulated(nodes, "inter=0us,10MB/s,per-node intra=0us,1TB/s pass=1TB/s");
  expect_simulated(nodes, "inter=0us,10MB/s,per-rank intra=0us,1TB/s pass=1TB/s");
}

TEST(Planner, PartsHideWhatTakesLess) {
  const auto made = compress::make_compressor("topk:0.01");
  const Topology hosts = Topology::uniform(4, 1);
  const CostShape shape{4, kCount, made->kept(kCount), made->codings(), &hosts};
  for (const char* links : {"inter=50us,1Gbit/s pass=20GB/s", "inter=50us,1Gbit/s pass=5GB/s"}) {
    const LinkModel model = LinkModel::parse(links);
    for (const char* name : {"gather", "balanced"}) {
      const comm::Schedule& schedule = comm::find_schedule(name);
      const double estimated = estimate_in_parts(schedule, shape, {4, 0, &hosts, model}, *made);
      EXPECT_LT(estimated, 0.9 * estimate_seconds(schedule, shape, model)) << name << ' ' << links;
      const double simulated = comm::predict({hosts, model, kCount, "topk:0.01", name}).seconds;
      EXPECT_NEAR(estimated, simulated, 0.15 * simulated) << name << ' ' << links;
    }
  }
}

TEST(Planner, PartsAreShortBetweenNodesAlone) {
  const auto made = compress::make_compressor("topk:0.01");
  const auto part = [&](const char* schedule, const Topology& topology) {
    return longest_part(comm::find_schedule(schedule), {topology.ranks(), 0, &topology}, *made,
                        25600000);
  };
  EXPECT_EQ(part("gather", Topology::uniform(1, 8)), Options::kMaxPart);
  EXPECT_EQ(part("gather", Topology::uniform(8, 1)), 1U << 20);
  EXPECT_EQ(part("dense", Topology::uniform(8, 1)), Options::kMaxPart);
  // A message to each of 64 owners exceeds 16 KiB only in parts of 2^25 elements.
  EXPECT_EQ(part("balanced", Topology::uniform(64, 1)), 1U << 25);
  // Each rail carries a quarter of the part.
  EXPECT_EQ(part("two_level:gather", Topology::uniform(4, 4)), 1U << 21);
}

TEST(Planner, BucketsBetweenNodesTravelInParts) {
  const auto made = compress::make_compressor("topk:0.01");
  const Topology hosts = Topology::uniform(4, 1), host = Topology::uniform(1, 4);
  std::vector<float> elements(3'000'000);
  const Segment segments[] = {{.elements = elements, .id = 1}};
  const auto plan = [&](const Topology& topology, std::uint64_t max_part) {
    comm::ParameterStates parameters;
    return comm::plan_bucket(1, segments, {.schedule = "gather", .max_part = max_part},
                             {4, 0, &topology}, *made, parameters);
  };
  EXPECT_EQ(plan(host, Options::kAutomatic).parts.size(), 1U);
  const comm::Bucket bucket = plan(hosts, Options::kAutomatic);
  EXPECT_EQ(bucket.parts.size(), 3U);
  EXPECT_EQ(bucket.words.schedule, "gather");
  EXPECT_EQ(plan(hosts, 1'000'000'000).parts.size(), 1U);
}

// A residual may be confined to a node's shards, so the plan must name the nodes.
TEST(Planner, APlanInTwoLevelsNamesTheNodes) {
  const auto made = compress::make_compressor("topk:0.01");
  std::vector<float> elements(100'000);
  const Segment segments[] = {{.elements = elements, .id = 1}};
  const auto plan = [&](const char* schedule, const std::vector<int>& node_of_rank) {
    const Topology topology = Topology::from_nodes(node_of_rank);
    comm::ParameterStates parameters;
    return comm::plan_bucket(1, segments, {.schedule = schedule}, {4, 0, &topology}, *made,
                             parameters)
        .plan;
  };
  const std::vector<int> halves = {0, 0, 1, 1}, dealt = {0, 1, 0, 1};
  EXPECT_EQ(plan("two_level:gather", halves), plan("two_level:gather", halves));
  EXPECT_NE(plan("two_level:gather", halves), plan("two_level:gather", dealt));
  EXPECT_EQ(plan("gather", halves), plan("gather", dealt));
}

// A parameter's pieces outlive the plans of other buckets, whatever the length of their parts.
TEST(Planner, AParameterKeepsItsPieces) {
  const auto made = compress::make_compressor("topk:0.01");
  const Topology hosts = Topology::uniform(4, 1);
  std::vector<float> first(3'000'000), second(2'000'000);
  const Segment one[] = {{.elements = first, .id = 1}};
  const Segment two[] = {{.elements = first, .id = 1}, {.elements = second, .id = 2}};
  comm::ParameterStates parameters;
  const auto plan = [&](std::span<const Segment> segments, const Options& options) {
    return comm::plan_bucket(1, segments, options, {4, 0, &hosts}, *made, parameters);
  };
  const comm::Bucket alone = plan(one, {.schedule = "gather"});
  ASSERT_EQ(alone.parts.size(), 3U);
  for (const auto& part : alone.parts) part.part.pieces.front().state->mark_dirty();
  const compress::PieceState* const before = parameters.at(1).pieces.data();

  // A plan for a whole bucket keeps the pieces, and so does a refused plan.
  for (const char* schedule : {"dense", "gather", "least_bytes"}) {
    const comm::Bucket together = plan(two, {.schedule = schedule, .max_part = 4'000'000});
    std::size_t pieces = 0;
    for (const auto& part : together.parts) {
      for (const auto& piece : part.part.pieces)
        pieces += piece.parameter == &parameters.at(1) ? 1 : 0;
    }
    EXPECT_EQ(pieces, 3U) << schedule;
  }
  const Segment three[] = {{.elements = first, .id = 1}, {.elements = first, .id = 3}};
  EXPECT_THROW((void)plan(three, {.schedule = "gather", .max_part = 40}), UsageError);
  EXPECT_EQ(parameters.at(1).pieces.data(), before);
  ASSERT_EQ(parameters.at(1).pieces.size(), 3U);
  for (const auto& state : parameters.at(1).pieces) EXPECT_TRUE(state.dirty);
}

}  // namespace
}  // namespace winnow::tests
