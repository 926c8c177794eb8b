// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Predictions against the costs that schedules state, and against closed forms.
#include "lab/predict/prediction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <winnow/error.hpp>

#include "comm/schedule/schedule.hpp"
#include "tests/harness/schedules.hpp"

namespace winnow::tests {
namespace {

using comm::Prediction;
using comm::Scenario;

Scenario scenario(int nodes, int ranks, std::uint64_t count, const char* compressor,
                  std::string_view schedule) {
  return {.topology = Topology::uniform(nodes, ranks),
          .links = LinkModel::parse("inter=50us,1Gbit/s pass=1000GB/s"),
          .count = count,
          .compressor = compressor,
          .schedule = std::string(schedule),
          .max_part = Options::kMaxPart};
}

constexpr const char* kOfSums = "topk:0.01:sums=0.04,int8";

TEST(Prediction, SendsTheBytesOfTheCostRow) {
  for (const comm::Schedule* each : comm::schedules()) {
    const comm::Schedule& schedule = *each;
    if (schedule.inner != nullptr) continue;
    for (const int ranks : {1, 2, 3, 7, schedule.name == "dense" ? 16 : 64}) {
      for (const char* compressor : {"topk:0.01", "topk:0.001,int8", "int4", kOfSums}) {
        if (compressor == kOfSums && schedule.own_support) continue;
        const Scenario what = scenario(ranks, 1, 1 << 21, compressor, schedule.name);
        const auto made = compress::make_compressor(compressor);
        const Prediction prediction = predict(what);
        const auto promised =
            static_cast<double>(schedule.wire_bytes({.ranks = ranks,
                                                     .count = what.count,
                                                     .k = made->kept(what.count),
                                                     .codings = made->codings(),
                                                     .sums_k = made->kept_sums(what.count)}));
        const auto sent = static_cast<double>(prediction.wire_bytes);
        EXPECT_NEAR(sent, promised, 0.006 * promised)
            << schedule.name << " of " << ranks << " ranks by " << compressor;
        EXPECT_EQ(prediction.uplink_bytes, prediction.wire_bytes);
      }
    }
  }
}

// Whole gradients travel within nodes; between nodes the inner schedule's bytes do.
TEST(Prediction, TwoLevelsSendTheBytesOfTheCostRow) {
  for (const comm::Schedule* each : comm::schedules()) {
    const comm::Schedule& schedule = *each;
    if (schedule.inner == nullptr) continue;
    for (const char* text : {"1x4", "2x2", "3,1,2", "4x8"}) {
      for (const char* compressor : {"topk:0.01", "topk:0.001,int8", "int4", kOfSums}) {
        if (compressor == kOfSums && schedule.has_own_support()) continue;
        SCOPED_TRACE(std::string(schedule.name) + " over " + text + " by " + compressor);
        Scenario what = scenario(1, 1, 1 << 21, compressor, schedule.name);
        what.topology = Topology::parse(text);
        const auto made = compress::make_compressor(compressor);
        const comm::CostShape shape{.ranks = what.topology.ranks(),
                                    .count = what.count,
                                    .k = made->kept(what.count),
                                    .codings = made->codings(),
                                    .topology = &what.topology,
                                    .sums_k = made->kept_sums(what.count)};
        const Prediction prediction = predict(what);
        const auto wire = static_cast<double>(schedule.wire_bytes(shape));
        const auto network = static_cast<double>(schedule.network_bytes(shape));
        EXPECT_EQ(prediction.schedule, &schedule);
        EXPECT_NEAR(static_cast<double>(prediction.wire_bytes), wire, 0.01 * wire);
        EXPECT_NEAR(static_cast<double>(prediction.uplink_bytes), network, 0.01 * network);
      }
    }
  }
}

TEST(Prediction, ChoosesAsACallDoes) {
  Scenario what = scenario(4, 8, 25'600'000, "topk:0.01", "two_level");
  const Prediction two_level = predict(what);
  ASSERT_NE(two_level.schedule, nullptr);
  EXPECT_NE(two_level.schedule->inner, nullptr);
  EXPECT_TRUE(two_level.reason.starts_with("schedule=two_level, predicted to take "))
      << two_level.reason;
  what.schedule = "auto";
  what.links = LinkModel::parse("inter=0us,1TB/s intra=0us,1TB/s pass=1GB/s");
  EXPECT_EQ(predict(what).schedule->name, "dense");
}

// Links take nearly all of the time here: latency and the busiest port's bytes.
TEST(Prediction, TakesTheTimeOfTheBusiestPort) {
  for (const char* name : {"gather", "balanced"}) {
    const Prediction prediction = predict(scenario(4, 1, 25'600'000, "topk:0.01", name));
    const double wire = static_cast<double>(prediction.wire_bytes) / 125e6;
    EXPECT_GE(prediction.seconds, wire);
    EXPECT_LT(prediction.seconds, 1.1 * wire) << name;
  }
  const Prediction ring = predict(scenario(4, 1, 25'600'000, "none", "dense"));
  EXPECT_NEAR(ring.seconds, 153.6e6 / 125e6, 0.02);
}

TEST(Prediction, ComputationTakesTheTimeOfItsPasses) {
  Scenario what = scenario(2, 1, 10'000'000, "topk:0.001", "gather");
  what.links = LinkModel::parse("inter=0us,100000GB/s pass=10GB/s");
  // Gradient and residual, both read and written.
  EXPECT_NEAR(predict(what).seconds, 16 * 10e6 / 10e9, 0.001);
}

TEST(Prediction, NodesShareTheirUplink) {
  const Prediction flat = predict(scenario(4, 1, 4'000'000, "topk:0.01", "balanced"));
  const Prediction shared = predict(scenario(4, 2, 4'000'000, "topk:0.01", "balanced"));
  EXPECT_GT(shared.uplink_bytes, flat.uplink_bytes * 3 / 2);
  EXPECT_GT(shared.seconds, flat.seconds * 1.4);
}

TEST(Prediction, CountsRoundsAndIsDeterministic) {
  Scenario what = scenario(3, 2, 1'000'000, "topk:0.01", "balanced");
  what.trace = true;
  const Prediction one = predict(what), two = predict(what);
  EXPECT_EQ(one.rounds.size(), 2U);
  EXPECT_LE(one.rounds[0].end, one.rounds[1].end);
  EXPECT_EQ(one.transfers.size(), 2U * 6 * 5);
  EXPECT_EQ(one.transfers, two.transfers);
  EXPECT_EQ(one.seconds, two.seconds);
}

// The longer of passes and messages hides the shorter one of other parts.
TEST(Prediction, PartsOverlap) {
  for (const char* name : {"gather", "balanced"}) {
    for (const char* links : {"inter=0us,1Gbit/s pass=20GB/s", "inter=0us,4Gbit/s pass=5GB/s"}) {
      Scenario what = scenario(4, 1, 1 << 25, "topk:0.01", name);
      what.links = LinkModel::parse(links);
      const Prediction whole = predict(what);
      what.links = LinkModel::parse("inter=0us,1TB/s pass=20GB/s");
      what.links.pass = LinkModel::parse(links).pass;
      const double passes = predict(what).seconds;
      what.links = LinkModel::parse(links);
      what.max_part = 1 << 20;
      const Prediction parts = predict(what);
      EXPECT_EQ(parts.parts, 32U);
      EXPECT_TRUE(parts.rounds.empty());
      const double longer = std::max(passes, whole.seconds - passes);
      EXPECT_GE(parts.seconds, 0.99 * longer) << name << " on " << links;
      EXPECT_LT(parts.seconds, longer + (whole.seconds - longer) / 3) << name << " on " << links;
      EXPECT_NEAR(static_cast<double>(parts.k), static_cast<double>(whole.k), 32.0 * 4);
    }
  }
}

TEST(Prediction, BucketsTravelInThePartsOfACall) {
  Scenario what = scenario(4, 1, 25'600'000, "topk:0.01", "gather");
  what.max_part = Options::kAutomatic;
  EXPECT_EQ(predict(what).parts, 25U);
  what.topology = Topology::uniform(1, 4);
  EXPECT_EQ(predict(what).parts, 1U);
}

// Nodes of one rank have nothing to add up.
TEST(Prediction, OfTwoLevelsIsThatBetweenNodesOfOneRank) {
  for (const std::string& inner : inner_schedule_names()) {
    const std::string named = "two_level:" + inner;
    const Prediction flat = predict(scenario(4, 1, 100'000, "topk:0.1", inner));
    const Prediction two_level = predict(scenario(4, 1, 100'000, "topk:0.1", named));
    EXPECT_EQ(two_level.seconds, flat.seconds);
    EXPECT_EQ(two_level.wire_bytes, flat.wire_bytes);
  }
}

/// Formulas and simulation say nearly the same, but that in formulas each message takes the link's
/// latency.
TEST(Prediction, AnEstimateIsNearIt) {
  for (const auto& [nodes, ranks] : {std::pair{2, 1}, {16, 1}, {48, 1}, {8, 4}}) {
    for (const comm::Schedule* schedule : comm::schedules()) {
      SCOPED_TRACE(testing::Message() << schedule->name << ' ' << nodes << 'x' << ranks);
      Scenario what = scenario(nodes, ranks, 1 << 22, "topk:0.01", schedule->name);
      what.max_part = Options::kAutomatic;
      const Prediction simulated = predict(what), estimated = estimate(what);
      EXPECT_EQ(estimated.schedule, simulated.schedule);
      EXPECT_EQ(estimated.parts, simulated.parts);
      if (schedule->inner == nullptr && schedule->name != "dense") {
        EXPECT_EQ(estimated.messages, simulated.messages);
      } else {
        EXPECT_LE(estimated.messages, simulated.messages);
      }
      const auto near = [](double a, double b, double share) { EXPECT_NEAR(a, b, share * b); };
      const double latencies = 50e-6 * static_cast<double>(estimated.messages);
      EXPECT_GT(estimated.seconds, 0.7 * simulated.seconds);
      EXPECT_LT(estimated.seconds, 1.3 * simulated.seconds + latencies);
      near(static_cast<double>(estimated.wire_bytes), static_cast<double>(simulated.wire_bytes),
           0.02);
      near(static_cast<double>(estimated.uplink_bytes), static_cast<double>(simulated.uplink_bytes),
           0.02);
    }
  }
  EXPECT_THROW(estimate(scenario(4, 1, 1 << 22, "topk:0.01", "gather")), UsageError);
}

// Elements, residuals, lists and messages of these ranks would fill terabytes.
TEST(Prediction, TouchesNoElement) {
  for (const std::string& name : inner_schedule_names()) {
    for (const char* compressor : {"topk:0.01,int8", "int4"}) {
      const Scenario what = scenario(16, 2, Options::kMaxPart, compressor, name);
      EXPECT_GT(predict(what).wire_bytes, Options::kMaxPart / 100) << name << ' ' << compressor;
    }
  }
}

TEST(Prediction, RefusesWhatMakesNoSense) {
  EXPECT_THROW(predict(scenario(2, 1, 0, "topk:0.01", "gather")), UsageError);
  EXPECT_THROW(predict(scenario(2, 1, 100, "topk:0.01", "gathr")), UsageError);
  EXPECT_THROW(predict(scenario(2, 1, 100, "topk:2", "gather")), UsageError);
}

}  // namespace
}  // namespace winnow::tests
