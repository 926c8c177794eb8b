// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Gradients that each rank divides by the root of their second moment, and multiplies by a rate,
// before error feedback: the same bits as a caller who does it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/elementwise.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

const std::vector<Parameter> kParameters = {{1, 5001}, {2, 300, 1}, {3, 0}, {4, 1}, {9, 2000}};

struct Case {
  const char* compressor;
  const char* schedule;
  std::uint64_t max_part = 0;
};

Options options_of(const Case& c) {
  return {.compressor = c.compressor,
          .schedule = c.schedule,
          .links = kGivenLinks,
          .trial_calls = 0,
          .min_bytes = 0,
          .max_part = c.max_part,
          .deadline = 60};
}

/// The step number `step` of a moment with 0.9, by hand.
kernels::SecondMomentStep moment_step(int step, float rate) {
  const double known = 1 - std::pow(0.9, step + 1);
  return {.decay = 0.9F,
          .weight = static_cast<float>(1 - 0.9),
          .correction = static_cast<float>(1 / known),
          .floor = 1e-6F,
          .rate = rate};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class PreconditionOf : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Ways, PreconditionOf,
    testing::Values(Case{"topk:0.02", "gather"}, Case{"topk:0.02", "gather", 1000},
                    Case{"topk:0.02,int8", "balanced"}, Case{"threshold:0.5", "gather"},
                    Case{"topk:0.02", "shared"}, Case{"randomk:0.02", "balanced"},
                    Case{"int4", "balanced"}, Case{"none", "dense"},
                    Case{"topk:0.02", "two_level:balanced"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

// In place and out of place, with another rate for each parameter and step.
TEST_P(PreconditionOf, GivesTheBitsOfACallerWhoDoesIt) {
  const Case c = GetParam();
  run_worlds(c.schedule, [&](const std::shared_ptr<Transport>& transport) {
    for (const std::string by :
         {"none", "second_moment:0.9:1e-6", "momentum:0.9", "momentum:0.9:masked"}) {
      const auto run = [&](bool by_hand) {
        Options options = options_of(c);
        if (!by_hand) options.precondition = by;
        Reducer reducer(transport, options);
        std::vector<std::vector<float>> moments, seen(1);
        for (const Parameter& parameter : kParameters) moments.emplace_back(parameter.count);
        for (int step = 0; step < 4; ++step) {
          std::vector<std::vector<float>> gradients, results;
          std::vector<Segment> bucket;
          for (std::size_t p = 0; p < kParameters.size(); ++p) {
            const auto& [id, count, dimensions] = kParameters[p];
            auto& gradient = gradients.emplace_back(
                make_gradient(Kind::normal, count, transport->rank(), step, id));
            const float rate = static_cast<float>(id) / static_cast<float>(2 + step);
            if (by_hand && by == "none") {
              kernels::scale({}, gradient, rate);
            } else if (by_hand && by.starts_with("second")) {
              kernels::divide_by_moment({}, gradient, moments[p], moment_step(step, rate));
            } else if (by_hand) {
              const bool own = reducer.topology().nodes() == transport->size() ||
                               !options.schedule.starts_with("two_level");
              const bool masked = by.ends_with("masked") && options.compressor != "none" && own;
              const auto residual = masked && dimensions != 1 ? reducer.residual(id) : seen[0];
              kernels::correct_momentum({}, gradient, moments[p], residual,
                                        {.momentum = 0.9F, .rate = rate});
            }
            auto& result = results.emplace_back(gradient);
            if (step % 2 == 1) std::ranges::fill(result, 7.0F);
            Segment segment{.elements = result, .id = id, .dimensions = dimensions};
            if (step % 2 == 1) segment.input = gradient;
            if (!by_hand) segment.rate = rate;
            bucket.push_back(segment);
          }
          reducer.all_reduce(bucket);
          for (auto& result : results) seen.push_back(std::move(result));
        }
        for (const Parameter& parameter : kParameters) {
          seen.push_back(reducer.residual(parameter.id));
        }
        return seen;
      };
      const auto got = run(false), expected = run(true);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(same_bits(got[i], expected[i])) << i << ", " << by;
      }
    }
  });
}

// Of every shard, this rank's own included, which no message carries.
TEST(Precondition, OfAReduceScatter) {
  for (const char* const compressor : {"topk:0.02", "int8", "none"}) {
    run_ranks(3, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      const auto& transport = transports[0];
      Options options = options_of({compressor, "auto"});
      Reducer by_hand(transports[1], options);
      options.precondition = "second_moment:0.9:1e-6";
      Reducer reducer(transport, options);
      constexpr std::size_t kShard = 1000;
      const auto ranks = static_cast<std::size_t>(transport->size());
      std::vector<float> moment(ranks * kShard), got(kShard), expected(kShard);
      for (int step = 0; step < 3; ++step) {
        auto input = make_gradient(Kind::normal, moment.size(), transport->rank(), step, 1);
        reducer.reduce_scatter(input, got, 1);
        kernels::divide_by_moment({}, input, moment, moment_step(step, 1));
        by_hand.reduce_scatter(input, expected, 1);
        EXPECT_TRUE(same_bits(got, expected)) << compressor << ", step " << step;
        EXPECT_TRUE(same_bits(reducer.residual(1), by_hand.residual(1))) << compressor;
      }
    });
  }
}

// A gradient that is not finite makes the result NaN, changes no moment, and is forgotten.
TEST(Precondition, OfWhatIsNotFinite) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      Options options = options_of({"topk:0.1", "gather"});
      options.precondition = "second_moment:0.5";
      Reducer reducer(transport, options);
      for (const float wrong : {std::numeric_limits<float>::infinity(), 1e30F}) {
        std::vector<float> gradient(100, 0.0F);
        gradient[3] = wrong;
        reducer.all_reduce(gradient, 1);
        for (const float element : gradient) EXPECT_TRUE(std::isnan(element));
      }
      std::vector<float> gradient(100, 0.0F);
      gradient[3] = 2;
      reducer.all_reduce(gradient, 1);
      // One gradient of three: v = 2, the corrected moment 2 / 0.875.
      EXPECT_FLOAT_EQ(gradient[3], 2 / std::sqrt(2 / 0.875F));
    });
  }
}

}  // namespace
}  // namespace winnow::tests
