// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Tests what is special to two levels: residuals outside of what a rank serves, bytes that stay
// within nodes, and when the planner chooses two levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/topology.hpp>

#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "lab/simulated/simulated.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/harness/schedules.hpp"
#include "tests/laws/kept.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

const std::vector<Parameter> kParameters = {{1, 5000}, {3, 2001}};

/// Flips a bit of each message to another node, once it knows the nodes.
class DamagingBetweenNodes final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void send(std::span<const std::byte> message, int peer) override {
    if (topology == nullptr || topology->node_of(peer) == node() || message.size() < 64) {
      ForwardingTransport::send(message, peer);
      return;
    }
    auto& copy = copies_.emplace_back(message.begin(), message.end());
    copy[message.size() / 2] ^= std::byte{1};
    ForwardingTransport::send(copy, peer);
  }

  const Topology* topology = nullptr;

 private:
  std::deque<std::vector<std::byte>> copies_;  // the messages that travel
};

// Between nodes a rank's number is its node's, which is not what errors say.
TEST(TwoLevel, ErrorsNameRanksOfTheWorld) {
  for (const std::string& schedule : inner_schedule_names()) {
    SCOPED_TRACE(schedule);
    Kept<std::shared_ptr<DamagingBetweenNodes>> transports;  // peers may read their copies
    run_worlds("two_level", [&](const std::shared_ptr<Transport>& world) {
      const auto transport = transports.make(std::make_shared<DamagingBetweenNodes>(world));
      Reducer reducer(transport, {.compressor = "topk:0.01",
                                  .schedule = "two_level:" + schedule,
                                  .min_bytes = 0,
                                  .deadline = 60});
      if (reducer.topology().nodes() == 1) return;
      TestBucket bucket(kParameters);
      bucket.fill(Kind::normal, world->rank(), 0);
      const int last = world->size() - 1;
      std::string said;
      try {
        for (int call = 0; call < 3; ++call) {  // the last one hears of what others found
          reducer.all_reduce(bucket.segments());
          if (world->rank() == last) transport->topology = &reducer.topology();
        }
      } catch (const CommError& error) {
        said = error.what();
      }
      const std::string name = "message from rank " + std::to_string(last);
      EXPECT_NE(said.find(name), std::string::npos) << said;
    });
  }
}

// A poisoned call leaves each gradient with its own rank, even if another rank serves it. The next
// call sends the gradient, and no rank keeps anything of what it does not serve.
TEST(TwoLevel, WhatWaitsElsewhereIsSentWithTheNextCall) {
  run_worlds("two_level", [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    Reducer reducer(transport, {.compressor = "none",
                                .schedule = "two_level:gather",
                                .op = ReduceOp::sum,
                                .min_bytes = 0});
    TestBucket bucket(kParameters);
    for (int poisoned = 0; poisoned < 3; ++poisoned) {
      for (auto& values : bucket.values()) std::ranges::fill(values, 1.0F);
      if (poisoned > 0 && rank == 0) {
        bucket.values()[1][7] = std::numeric_limits<float>::quiet_NaN();
      }
      reducer.all_reduce(bucket.segments());
      EXPECT_EQ(reducer.last().poisoned, poisoned > 0 ? 1U : 0U);
    }
    for (auto& values : bucket.values()) std::ranges::fill(values, 0.0F);
    reducer.all_reduce(bucket.segments());
    const auto ranks = static_cast<float>(transport->size());
    for (std::size_t p = 0; p < kParameters.size(); ++p) {
      for (std::size_t i = 0; i < kParameters[p].count; ++i) {
        const float lost = p == 1 && i == 7 ? 2 : 0;  // a NaN is not put back
        EXPECT_EQ(bucket.values()[p][i], 2 * ranks - lost) << reducer.topology().to_string();
      }
      for (const float left : reducer.residual(kParameters[p].id)) EXPECT_EQ(left, 0.0F);
    }
  });
}

// The next call also sends a residual that comes from another schedule's calls of the same
// parameters: a bucket too small to be compressed alone would be dense.
TEST(TwoLevel, ParametersMayChangeTheirBucket) {
  run_worlds("two_level", [&](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, {.compressor = "topk:0.1",
                                .schedule = "two_level",
                                .links = kGivenLinks,
                                .op = ReduceOp::sum,
                                .min_bytes = 0});
    const std::vector<Parameter> all = {{1, 3000}, {2, 1000}}, second = {{2, 1000}};
    double in = 0, out = 0;
    for (int step = 0; step < 4; ++step) {
      const auto& parameters = step % 2 == 0 ? all : second;
      TestBucket bucket(parameters);
      for (auto& values : bucket.values()) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<float>(1 + (i * 7 + static_cast<std::size_t>(step)) % 13);
          in += values[i];
        }
      }
      reducer.all_reduce(bucket.segments());
      for (const auto& values : bucket.values()) {
        for (const float value : values) out += value;
      }
    }
    for (const auto& parameter : all) {
      for (const float left : reducer.residual(parameter.id)) in -= left;
    }
    // Adds up over all ranks: their gradients are equal, their residuals are not.
    std::vector<double> left(static_cast<std::size_t>(transport->size()));
    Workspace workspace;
    transport->all_gather({.workspace = &workspace}, std::as_bytes(std::span(&in, 1)),
                          std::as_writable_bytes(std::span(left)),
                          Deadline::after(std::chrono::seconds(60)));
    double sum = 0;
    for (const double of_rank : left) sum += of_rank;
    EXPECT_EQ(sum, out) << reducer.topology().to_string();
  });
}

class BetweenNodes : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(TwoLevel, BetweenNodes, testing::ValuesIn(inner_schedule_names()),
                         [](const auto& test) { return test.param; });

/// Some rails have nothing to reduce.
TEST_P(BetweenNodes, ElementsMayBeFewerThanRails) {
  const std::string schedule = "two_level:" + GetParam();
  run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
    for (const char* compressor : {"none", "topk:1"}) {
      Reducer reducer(
          transport,
          {.compressor = compressor, .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0});
      const int ranks = transport->size();
      for (std::size_t count = 1; count <= 3; ++count) {
        for (int step = 0; step < 3; ++step) {
          std::vector<float> gradient(count);
          for (std::size_t i = 0; i < count; ++i) {
            gradient[i] = static_cast<float>(transport->rank() + 10 * static_cast<int>(i));
          }
          reducer.all_reduce(gradient, count);
          for (std::size_t i = 0; i < count; ++i) {
            const int sum = ranks * (ranks - 1) / 2 + 10 * ranks * static_cast<int>(i);
            EXPECT_EQ(gradient[i], static_cast<float>(sum)) << reducer.topology().to_string();
          }
        }
      }
    }
  });
}

/// Gradients that are put back lie in residuals outside of a rank's shards, too. They take part in
/// the next call, once.
TEST_P(BetweenNodes, WhatIsRestoredComesOutInTheNextCall) {
  constexpr std::size_t kCount = 1000, kBad = 5;
  const std::string schedule = "two_level:" + GetParam();
  run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(
        transport,
        {.compressor = "topk:1", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0});
    const int ranks = transport->size(), culprit = ranks - 1;
    std::vector<float> elements(kCount, 1);
    reducer.all_reduce(elements, 1);
    for (std::size_t i = 0; i < kCount; ++i) {
      elements[i] = static_cast<float>(transport->rank() + 10 * static_cast<int>(i % 9));
    }
    if (transport->rank() == culprit) elements[kBad] = std::numeric_limits<float>::infinity();
    reducer.all_reduce(elements, 1);
    EXPECT_EQ(reducer.last().poisoned, 1U);
    for (const float element : elements) EXPECT_TRUE(std::isnan(element));
    for (const bool again : {false, true}) {
      std::ranges::fill(elements, 0.0F);
      reducer.all_reduce(elements, 1);
      EXPECT_EQ(reducer.last().poisoned, 0U);
      for (std::size_t i = 0; i < kCount; ++i) {
        const int senders = i == kBad ? ranks - 1 : ranks;
        const int sum = senders * (senders - 1) / 2 + 10 * senders * static_cast<int>(i % 9);
        EXPECT_EQ(elements[i], again ? 0.0F : static_cast<float>(sum))
            << reducer.topology().to_string() << ", element " << i;
      }
    }
  });
}

/// One simulated rank after some steps: its results, its residuals, and what it sent.
struct Ended {
  std::vector<float> results, residual;
  std::uint64_t bytes, allocations;
  std::string schedule, reason;
};

std::vector<Ended> run_steps(const Topology& topology, const Options& options) {
  std::vector<Ended> ended(static_cast<std::size_t>(topology.ranks()));
  const auto body = [&](const std::shared_ptr<comm::SimulatedTransport>& transport) {
    AllReducer reducer(transport, options);
    Ended& mine = ended[static_cast<std::size_t>(transport->rank())];
    for (int step = 0; step < 3; ++step) {
      auto gradient = make_gradient(Kind::normal, 20000, transport->rank(), step, 1);
      reducer.all_reduce(gradient, 1);
      mine.results.insert(mine.results.end(), gradient.begin(), gradient.end());
    }
    mine.residual.assign(reducer.residual(1).begin(), reducer.residual(1).end());
    mine.bytes = transport->bytes_sent();
    mine.allocations = reducer.totals().allocations;
    mine.schedule = reducer.last().schedule;
    mine.reason = reducer.last().reason;
  };
  (void)comm::SimulatedWorld{.topology = topology}.run(body);
  return ended;
}

// With one rank per node two levels are the schedule between nodes: the same bits and bytes, and no
// scratch for copies of the gradient. A single node of two ranks makes the schedule two-level
// again.
TEST(TwoLevel, IsFlatWithOneRankOnEveryNode) {
  for (const std::string& inner : inner_schedule_names()) {
    SCOPED_TRACE(inner);
    const std::string named = "two_level:" + inner;
    const Options flat{.compressor = "topk:0.01,int8", .schedule = inner, .min_bytes = 0};
    Options two_level = flat;
    two_level.schedule = named;
    for (const char* text : {"2x1", "5x1"}) {
      const auto expected = run_steps(Topology::parse(text), flat);
      const auto ended = run_steps(Topology::parse(text), two_level);
      for (std::size_t rank = 0; rank < ended.size(); ++rank) {
        EXPECT_EQ(ended[rank].schedule, inner);
        EXPECT_EQ(ended[rank].reason, "schedule=" + named + ", one rank on every node");
        EXPECT_TRUE(same_bits(ended[rank].results, expected[rank].results));
        EXPECT_TRUE(same_bits(ended[rank].residual, expected[rank].residual));
        EXPECT_EQ(ended[rank].bytes, expected[rank].bytes);
        EXPECT_EQ(ended[rank].allocations, expected[rank].allocations);
      }
    }
    for (const char* text : {"2,1", "1x2"}) {
      const auto ended = run_steps(Topology::parse(text), two_level);
      EXPECT_EQ(ended.front().schedule, named) << text;
    }
  }
}

TEST(TwoLevel, StatsCountWhatLeavesTheNode) {
  for (const char* schedule :
       {"two_level:gather", "two_level:balanced", "two_level:shared", "gather", "balanced"}) {
    run_worlds("two_level", [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(
          transport,
          {.compressor = "topk:0.01", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0});
      for (int step = 0; step < 2; ++step) {
        auto gradient = make_gradient(Kind::normal, 60000, transport->rank(), step, 1);
        const std::uint64_t before = transport->bytes_sent();
        reducer.all_reduce(gradient, 0);
        if (step == 0) continue;
        const Stats stats = reducer.last();
        const Topology& topology = reducer.topology();
        EXPECT_EQ(stats.wire_bytes, transport->bytes_sent() - before);
        if (topology.nodes() == 1) {
          EXPECT_EQ(stats.network_bytes, 0U);
        }
        if (topology.rails() == 1 && topology.nodes() > 1) {
          EXPECT_EQ(stats.network_bytes, stats.wire_bytes);
        }
        if (std::string_view(schedule) != "two_level:gather") continue;
        // For each rail, one message of a shard to each other node.
        const comm::Schedule& inner = comm::find_schedule("gather");
        std::uint64_t expected = 0;
        const auto compressor = compress::make_compressor("topk:0.01");
        for (int rail = 0; rail < topology.rails(); ++rail) {
          const Chunk range = ring_chunk(60000, rail, topology.rails());
          const auto servers = topology.rail(rail);
          if (std::ranges::count(servers, transport->rank()) == 0) continue;
          const std::uint64_t count = range.end - range.begin;
          expected += inner.wire_bytes(
              {.ranks = topology.nodes(), .count = count, .k = compressor->kept(count)});
        }
        EXPECT_EQ(stats.network_bytes, expected);
      }
    });
  }
}

// least_bytes takes two levels for long messages only: short ones do not pay for the gradients that
// travel within nodes.
TEST(TwoLevel, TheFewestBytesAreItsWhereItSparesTheNetwork) {
  run_worlds("two_level", [&](const std::shared_ptr<Transport>& transport) {
    for (const char* compressor : {"int8", "topk:0.001"}) {
      AllReducer reducer(transport, {.compressor = compressor, .schedule = "least_bytes"});
      std::vector<float> gradient(100000, 1.0F);
      reducer.all_reduce(gradient, 0);
      const Topology& topology = reducer.topology();
      const bool pays =
          topology.nodes() > 1 && topology.rails() > 1 && std::string_view(compressor) == "int8";
      EXPECT_EQ(reducer.last().schedule.starts_with("two_level:"), pays)
          << topology.to_string() << " " << compressor << " " << reducer.last().schedule;
    }
  });
}

TEST(TwoLevel, AnUnknownInnerScheduleNamesTheNearest) {
  EXPECT_EQ(Options::parse("schedule=two_level:balanced").schedule, "two_level:balanced");
  EXPECT_EQ(Options::parse("schedule=two_level").schedule, "two_level");
  try {
    (void)Options::parse("schedule=two_level:gahter");
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("'two_level:gather'"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace winnow::tests
