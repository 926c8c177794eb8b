// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Every schedule of the table, under AllReducer, with up to 64 simulated ranks: it ends; every
// message sent is received; every contribution is summed exactly once; all ranks hold the same
// bits, those of the documented tree; and the busiest rank sends the bytes of the schedule's cost.
// A new line of the table is tested without a change here; for its tree add one line to
// expected_sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>
#include <winnow/winnow.hpp>

#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "lab/simulated/simulated.hpp"
#include "tests/harness/sanitized.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

using comm::SimulatedTransport;
using comm::SimulatedWorld;
using Gradients = std::vector<std::vector<std::vector<float>>>;  // [rank][parameter][element]

const std::vector<Parameter> kParameters = {{21, 1301}, {22, 1}, {23, 0}, {24, 200}};

/// Distributes ranks over nodes in one of several shapes, including unequal ones.
Topology shape_of(int ranks) {
  if (ranks % 4 == 0) return Topology::uniform(ranks / 4, 4);
  if (ranks % 4 == 1) return Topology::uniform(1, ranks);
  std::vector<int> node_of_rank;
  for (int node = 0; static_cast<int>(node_of_rank.size()) < ranks; ++node)
    for (int n = 0; n < 3 - node % 3 && static_cast<int>(node_of_rank.size()) < ranks; ++n)
      node_of_rank.push_back(node);
  return Topology::from_nodes(node_of_rank);
}

constexpr int kMostRanks = kSanitized ? 9 : 33;
constexpr std::array kLarge = {47, 63, 64};  // the work grows with the square of the ranks

/// Tests every compressor and the order of sums; the others get one compressor.
bool is_thorough(const Topology& topology) {
  constexpr std::array kMiddle = {24, 31, 32, 33};
  return topology.ranks() <= 17 || topology.ranks() > 33 ||
         std::ranges::find(kMiddle, topology.ranks()) != kMiddle.end();
}

std::vector<Topology> shapes() {
  std::vector<Topology> all;
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) all.push_back(shape_of(ranks));
  if (!kSanitized) std::ranges::transform(kLarge, std::back_inserter(all), shape_of);
  for (const char* text : {"3,1,2", "5", "2x4", "1,7,2,2", "6x1"})
    all.push_back(Topology::parse(text));
  return all;
}

/// All ranks' state after some steps.
struct Outcome {
  std::vector<Gradients> results;           // [step]
  Gradients residuals;                      // empty where a parameter has none
  std::vector<std::uint64_t> last_bytes;    // sent in the last step, by rank
  std::vector<std::uint64_t> uplink_bytes;  // in all, by node
};

Outcome run(const Topology& topology, const Options& options, const std::vector<Parameter>& bucket,
            const std::vector<Gradients>& steps) {
  const auto ranks = static_cast<std::size_t>(topology.ranks());
  Outcome outcome;
  outcome.results.assign(steps.size(), Gradients(ranks));
  outcome.residuals.resize(ranks);
  outcome.last_bytes.resize(ranks);
  const SimulatedWorld world{.topology = topology};
  const auto result = world.run([&](const std::shared_ptr<SimulatedTransport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    AllReducer reducer(transport, options);
    TestBucket mine(bucket);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      for (std::size_t p = 0; p < bucket.size(); ++p)
        std::ranges::copy(steps[step][rank][p], mine.values()[p].begin());
      const std::uint64_t before = transport->bytes_sent();
      reducer.all_reduce(mine.segments());
      outcome.last_bytes[rank] = transport->bytes_sent() - before;
      outcome.results[step][rank] = mine.values();
    }
    for (const Parameter& parameter : bucket) {
      const auto residual = reducer.residual(parameter.id);
      outcome.residuals[rank].emplace_back(residual.begin(), residual.end());
    }
  });
  outcome.uplink_bytes = result.uplink_bytes;
  return outcome;
}

void expect_agreement(const Outcome& outcome) {
  for (const Gradients& step : outcome.results) {
    for (std::size_t rank = 1; rank < step.size(); ++rank)
      for (std::size_t p = 0; p < step[rank].size(); ++p)
        EXPECT_TRUE(same_bits(step[rank][p], step[0][p])) << "rank " << rank;
  }
}

class Validator : public testing::TestWithParam<std::string_view> {
 protected:
  /// Options under which nothing but the schedule under test runs.
  static Options options(const std::string& compressor) {
    return {.compressor = compressor,
            .schedule = std::string(GetParam()),
            .op = ReduceOp::sum,
            .min_bytes = 0,
            .threads = 1};
  }
};

// A whole number other than 0, or, if `sparse`, mostly 0. Sums over a few steps of 64 ranks are
// exact in float32 in any order, so one contribution too many or too few shows.
float whole_number(std::uint64_t rank, std::uint64_t step, std::uint64_t i, bool sparse) {
  std::uint64_t hash = (i + 1) * 0x9E3779B97F4A7C15U + rank * 0xD6E8FEB86659FD93U + step;
  hash = (hash ^ hash >> 32) * 0xBF58476D1CE4E5B9U;
  hash = (hash ^ hash >> 29) * 0x94D049BB133111EBU;
  if (sparse && hash % 16 != 0) return 0;
  const auto magnitude = static_cast<float>(1 + (hash >> 50));
  return (hash >> 40 & 1) != 0 ? -magnitude : magnitude;
}

TEST_P(Validator, SumsEveryContributionExactlyOnce) {
  constexpr std::size_t kSteps = 3;
  for (const Topology& topology : shapes()) {
    SCOPED_TRACE("topology " + topology.to_string());
    for (const std::string compressor : {"none", "topk:0.02"}) {
      if (compressor == "none" && !is_thorough(topology)) continue;
      SCOPED_TRACE(compressor);
      std::vector<Gradients> steps(kSteps, Gradients(static_cast<std::size_t>(topology.ranks())));
      std::vector<std::vector<double>> left;  // by parameter: sent but not yet received
      for (const Parameter& parameter : kParameters) left.emplace_back(parameter.count);
      for (std::size_t step = 0; step < kSteps; ++step) {
        for (std::size_t rank = 0; rank < steps[step].size(); ++rank) {
          for (std::size_t p = 0; p < kParameters.size(); ++p) {
            auto& gradient = steps[step][rank].emplace_back(kParameters[p].count);
            for (std::size_t i = 0; i < gradient.size(); ++i) {
              gradient[i] = whole_number(rank, step, 10000 * p + i, step == 1);
              left[p][i] += static_cast<double>(gradient[i]);
            }
          }
        }
      }
      const Outcome outcome = run(topology, options(compressor), kParameters, steps);
      expect_agreement(outcome);
      for (const Gradients& step : outcome.results)
        for (std::size_t p = 0; p < left.size(); ++p)
          for (std::size_t i = 0; i < left[p].size(); ++i)
            left[p][i] -= static_cast<double>(step[0][p][i]);
      bool anything_left = false;
      for (const auto& of_rank : outcome.residuals) {
        for (std::size_t p = 0; p < left.size(); ++p) {
          for (std::size_t i = 0; i < of_rank[p].size(); ++i) {
            left[p][i] -= static_cast<double>(of_rank[p][i]);
            anything_left |= of_rank[p][i] != 0;
          }
        }
      }
      for (std::size_t p = 0; p < left.size(); ++p) {
        const auto lost = std::ranges::find_if(left[p], [](double mass) { return mass != 0; });
        EXPECT_TRUE(lost == left[p].end())
            << "parameter " << p << " element " << lost - left[p].begin() << " lacks " << *lost;
      }
      // Density 1 leaves nothing behind; otherwise this would prove less than it says.
      const bool lossless = GetParam() == "dense" || std::string(compressor) == "none";
      if (lossless || topology.ranks() > 1) {
        EXPECT_EQ(anything_left, !lossless);
      }
    }
  }
}

/// The ring's sum over ranks of one bucket of adjacent parameters: chunk c in the order c+1, c+2,
/// ..., c.
std::vector<std::vector<float>> ring_sum(const Gradients& gradients,
                                         const std::vector<Parameter>& bucket) {
  std::vector<std::uint64_t> bases;
  std::uint64_t count = 0;
  for (const Parameter& parameter : bucket) {
    bases.push_back(count);
    count += parameter.count;
  }
  const int ranks = static_cast<int>(gradients.size());
  std::vector<std::vector<float>> sums;
  for (const Parameter& parameter : bucket) sums.emplace_back(parameter.count);
  for (int c = 0; c < ranks; ++c) {
    const Chunk chunk = ring_chunk(count, c, ranks);
    for (std::size_t p = 0; p < bucket.size(); ++p) {
      const std::uint64_t begin = std::max(chunk.begin, bases[p]);
      const std::uint64_t end = std::min(chunk.end, bases[p] + bucket[p].count);
      for (std::uint64_t at = begin; at < end; ++at) {
        const auto of = [&](int n) {
          return gradients[static_cast<std::size_t>((c + n) % ranks)][p][at - bases[p]];
        };
        float sum = of(1);
        for (int n = 2; n <= ranks; ++n) sum += of(n);
        sums[p][at - bases[p]] = sum;
      }
    }
  }
  return sums;
}

/// Sums by step, for a schedule whose tree this test knows; otherwise empty.
std::vector<std::vector<std::vector<float>>> expected_sums(std::string_view schedule,
                                                           const Topology& topology, double density,
                                                           const std::vector<Gradients>& steps) {
  const int ranks = static_cast<int>(steps[0].size());
  std::vector<std::vector<std::vector<float>>> sums;
  if (schedule == "dense") {
    for (const Gradients& step : steps) sums.push_back(ring_sum(step, kParameters));
  } else if (schedule.ends_with("gather") || schedule.ends_with("balanced") ||
             schedule.ends_with("doubling") || schedule.ends_with("shared")) {
    Recipe recipe{.density = density,
                  .op = ReduceOp::sum,
                  .balanced = schedule.ends_with("balanced"),
                  .doubling = schedule.ends_with("doubling"),
                  .shared = schedule.ends_with("shared")};
    if (schedule.starts_with("two_level:")) recipe.two_level = topology;
    Reference reference(ranks, kParameters, recipe);
    for (const Gradients& step : steps) sums.push_back(reference.step(step));
  }
  return sums;
}

TEST_P(Validator, SumsInTheDocumentedOrder) {
  for (const Topology& topology : shapes()) {
    if (!is_thorough(topology) || topology.ranks() == 1)
      continue;  // one rank keeps all that it has
    SCOPED_TRACE("topology " + topology.to_string());
    for (const double density : {1.0, 0.1}) {
      std::vector<Gradients> steps;
      for (int step = 0; step < 2; ++step)
        steps.push_back(all_gradients(kParameters, Kind::normal, topology.ranks(), step));
      const auto expected = expected_sums(GetParam(), topology, density, steps);
      if (expected.empty()) GTEST_SKIP() << "no tree is known here";
      const Outcome outcome =
          run(topology, options(density == 1 ? "none" : "topk:0.1"), kParameters, steps);
      expect_agreement(outcome);
      for (std::size_t step = 0; step < steps.size(); ++step)
        for (std::size_t p = 0; p < kParameters.size(); ++p)
          EXPECT_TRUE(same_bits(outcome.results[step][0][p], expected[step][p]))
              << "density " << density << " step " << step << " parameter " << p;
    }
  }
}

/// Bytes that the busiest rank sends in a second call: the first one also compares plans.
std::uint64_t measure_bytes(const Topology& topology, const Options& options,
                            const Parameter& parameter, const Gradients& gradients) {
  const Outcome outcome = run(topology, options, {parameter}, {gradients, gradients});
  return std::ranges::max(outcome.last_bytes);
}

comm::CostShape cost_shape(const Topology& topology, std::uint64_t count,
                           const std::string& compressor, std::optional<double> overlap = {}) {
  const auto made = compress::make_compressor(compressor);
  return {.ranks = topology.ranks(),
          .count = count,
          .k = made->kept(count),
          .codings = made->codings(),
          .topology = &topology,
          .overlap = overlap};
}

/// A support for which the cost is exact: each unit of 64 positions has 4 large elements, also in
/// node sums, and each owner has as many units. Neighbouring ranks (or nodes) share no position
/// until all have been used.
struct Even {
  Even(const Topology& topology, bool two_level) {
    const int owners = two_level ? topology.nodes() * topology.rails() : topology.ranks();
    parameter.count = static_cast<std::uint64_t>(owners) * 128;
    for (int rank = 0; rank < topology.ranks(); ++rank) {
      const auto at = static_cast<std::size_t>(two_level ? topology.node_of(rank) : rank);
      auto& gradient = gradients.emplace_back().emplace_back(parameter.count);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = (i + at) % 16 == 0 ? 1000.0F : 0.001F;
    }
  }
  Parameter parameter{31, 0};
  Gradients gradients;
};
constexpr std::array kEvenCompressors = {"none", "topk:0.0625", "topk:0.0625,int8"};

TEST_P(Validator, TheBusiestRankSendsTheBytesOfTheCost) {
  for (const Topology& topology : shapes()) {
    SCOPED_TRACE("topology " + topology.to_string());
    const Even even(topology, GetParam().starts_with("two_level:"));
    for (const char* compressor : kEvenCompressors) {
      if (compressor != kEvenCompressors.back() && !is_thorough(topology)) continue;
      EXPECT_EQ(measure_bytes(topology, options(compressor), even.parameter, even.gradients),
                comm::find_schedule(GetParam())
                    .wire_bytes(cost_shape(topology, even.parameter.count, compressor, 0)))
          << compressor;
    }
  }
}

TEST_P(Validator, TheBusiestNodeSendsTheBytesOfTheCost) {
  for (const char* text : {"1x3", "4x1", "2x4", "3,1,2", "5x3", "1,7,2,2"}) {
    SCOPED_TRACE(text);
    const Topology topology = Topology::parse(text);
    const Even even(topology, GetParam().starts_with("two_level:"));
    for (const char* compressor : kEvenCompressors) {
      const auto uplinks = [&](std::size_t steps) {
        return run(topology, options(compressor), {even.parameter},
                   std::vector<Gradients>(steps, even.gradients))
            .uplink_bytes;
      };
      const auto first = uplinks(1), both = uplinks(2);
      std::uint64_t most = 0;
      for (std::size_t node = 0; node < both.size(); ++node)
        most = std::max(most, both[node] - first[node]);
      EXPECT_EQ(most, comm::find_schedule(GetParam())
                          .network_bytes(cost_shape(topology, even.parameter.count, compressor, 0)))
          << compressor;
    }
  }
}

// For uneven supports, gather sends the same; owners differ by a unit, and random supports and
// their unions by a few elements.
TEST_P(Validator, TheCostIsCloseForAnySupport) {
  const Parameter parameter{31, 20011};
  for (const int ranks : {2, 3, 7, 16}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const Topology topology = shape_of(ranks);
    const auto gradients = all_gradients({parameter}, Kind::normal, ranks, 0);
    for (const char* compressor : {"none", "topk:0.05"}) {
      const auto measured = static_cast<double>(
          measure_bytes(shape_of(ranks), options(compressor), parameter, gradients));
      const auto predicted =
          static_cast<double>(comm::find_schedule(GetParam())
                                  .wire_bytes(cost_shape(topology, parameter.count, compressor)));
      if (GetParam() == "gather") {
        EXPECT_EQ(measured, predicted) << compressor;
      }
      EXPECT_NEAR(measured, predicted, 0.1 * predicted) << compressor;
    }
  }
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const comm::Schedule* schedule : comm::schedules()) all.push_back(schedule->name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schedules, Validator, testing::ValuesIn(names()), [](const auto& test) {
  std::string name(test.param);
  std::ranges::replace(name, ':', '_');
  return name;
});

}  // namespace
}  // namespace winnow::tests
