// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What each preset is known for, in numbers that another rule would not give.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::size_t kCount = 4000;
constexpr std::size_t kKept = kCount / 100;

Options preset(const std::string& words) {
  Options options = Options::parse("preset=" + words);
  options.links = kGivenLinks;
  options.trial_calls = 0;
  options.op = ReduceOp::sum;
  options.min_bytes = 0;
  options.deadline = 60;
  return options;
}

/// Whole numbers, large at places of this rank's own; sums of them are exact.
std::vector<float> gradient_of(const Transport& transport, int call) {
  std::vector<float> gradient(kCount);
  const auto rank = static_cast<std::size_t>(transport.rank());
  const std::size_t mine = rank + 10 * static_cast<std::size_t>(call);
  for (std::size_t i = 0; i < kCount; ++i) {
    gradient[i] = static_cast<float>((i * 7 + mine * 1013) % 4001);
  }
  return gradient;
}

/// The sum over ranks of each element, in rank order.
std::vector<double> dense_sum(Transport& transport, const std::vector<float>& gradient) {
  std::vector<float> all(gradient.size() * static_cast<std::size_t>(transport.size()));
  transport.all_gather({}, std::as_bytes(std::span(gradient)),
                       std::as_writable_bytes(std::span(all)), Deadline::never());
  std::vector<double> sum(gradient.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    sum[i % gradient.size()] += static_cast<double>(all[i]);
  }
  return sum;
}

std::size_t nonzeros(const std::vector<float>& values) {
  return values.size() - static_cast<std::size_t>(std::ranges::count(values, 0.0F));
}

/// Calls body(transport) on each of 3 and 4 ranks.
void on_ranks(const RankBody& body) {
  for (const int ranks : rank_counts()) {
    if (ranks == 3 || ranks == 4) run_ranks(ranks, body);
  }
}

// Every rank sends at the positions that one of them has chosen, so the result has no more.
TEST(Preset, ScaleComSendsAtSharedPositions) {
  on_ranks([](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("scalecom"));
    const auto gradient = gradient_of(*transport, 0);
    const auto sum = dense_sum(*transport, gradient);
    auto result = gradient;
    reducer.all_reduce(result, 1);
    EXPECT_LE(nonzeros(result), kKept + 4);
    EXPECT_GE(nonzeros(result), kKept / 2);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_TRUE(result[i] == 0 || static_cast<double>(result[i]) == sum[i]) << i;
    }
  });
}

// Owners of positions choose among the sums again; what they leave waits with them.
TEST(Preset, OkTopkChoosesAmongTheSums) {
  on_ranks([](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("oktopk"));
    const auto gradient = gradient_of(*transport, 0);
    auto result = gradient;
    reducer.all_reduce(result, 1);
    EXPECT_LE(nonzeros(result), kKept + 4);
    const auto waiting = dense_sum(*transport, reducer.residual(1));
    const auto sum = dense_sum(*transport, gradient);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(static_cast<double>(result[i]) + waiting[i], sum[i]) << i;
    }
  });
}

// The largest elements of one sign, then those of the other, all as their mean; the rest waits.
// These means are quarters, and quarters of them, so nothing is rounded.
TEST(Preset, RedSyncSendsTheMeanOfOneSign) {
  const Options options = Options::parse("preset=redsync");
  EXPECT_EQ(options.min_bytes, 128U << 10);
  constexpr std::size_t kFew = kCount / 1000;
  on_ranks([](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("redsync"));
    std::vector<float> residual(kCount);
    for (int call = 0; call < 4; ++call) {
      const float sign = call % 2 == 0 ? 1 : -1;
      auto result = gradient_of(*transport, call), acc = residual, sent = residual;
      for (std::size_t i = 0; i < kCount; ++i) acc[i] += result[i] -= 2000;
      auto ranked = acc;
      std::ranges::sort(ranked, [&](float a, float b) { return sign * a > sign * b; });
      const float mean = (ranked[0] + ranked[1] + ranked[2] + ranked[3]) / kFew;
      reducer.all_reduce(result, 1);
      residual = reducer.residual(1);
      for (std::size_t i = 0; i < kCount; ++i) {
        sent[i] = acc[i] - residual[i];
        const bool is_large = sign * acc[i] >= sign * ranked[kFew - 1];
        EXPECT_EQ(sent[i], is_large ? mean : 0) << i << " in call " << call;
      }
      const auto sum = dense_sum(*transport, sent);
      for (std::size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(static_cast<double>(result[i]), sum[i]) << i << " in call " << call;
      }
    }
    EXPECT_EQ(reducer.last().schedule, "gather");
    const auto others = static_cast<std::uint64_t>(transport->size() - 1);
    EXPECT_LE(reducer.last().wire_bytes, others * (64 + kFew * 4 + 8));
  });
}

// The union of what the ranks chose, none of it dropped on the way.
TEST(Preset, SparCmlAddsUnions) {
  on_ranks([](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("sparcml"));
    const auto gradient = gradient_of(*transport, 0);
    auto result = gradient;
    reducer.all_reduce(result, 1);
    EXPECT_EQ(reducer.last().schedule, "doubling");
    auto sent = gradient;
    const auto residual = reducer.residual(1);
    for (std::size_t i = 0; i < kCount; ++i) sent[i] -= residual[i];
    EXPECT_EQ(nonzeros(sent), kKept);
    const auto sum = dense_sum(*transport, sent);
    EXPECT_GT(nonzeros(result), kKept);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(static_cast<double>(result[i]), sum[i]) << i;
    }
  });
}

// Every element by its sign and a mean, twice; errors wait.
TEST(Preset, OneBitSendsSigns) {
  on_ranks([](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("onebit"));
    std::vector<double> in(kCount), out(kCount);
    for (int call = 0; call < 30; ++call) {
      auto gradient = gradient_of(*transport, call);
      for (float& element : gradient) element -= 2000;
      const auto sum = dense_sum(*transport, gradient);
      reducer.all_reduce(gradient, 1);
      std::vector<float> sizes;
      for (const float element : std::span(gradient).first(64)) sizes.push_back(std::abs(element));
      EXPECT_EQ(std::ranges::max(sizes), std::ranges::min(sizes)) << "of one block";
      for (std::size_t i = 0; i < kCount; ++i) {
        in[i] += sum[i];
        out[i] += static_cast<double>(gradient[i]);
      }
    }
    const auto waiting = dense_sum(*transport, reducer.residual(1));
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(out[i] + waiting[i], in[i], 1) << i;
    EXPECT_LT(reducer.last().wire_bytes, kCount * 2 / 8 * 2);
  });
}

// 4 bits an element between nodes; what they miss does not come back.
TEST(Preset, QgzQuantizesWithoutFeedback) {
  run_worlds("two_level:balanced", [](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("qgz"));
    if (reducer.topology().nodes() == 1) return;
    const auto gradient = gradient_of(*transport, 0);
    const auto sum = dense_sum(*transport, gradient);
    auto result = gradient;
    reducer.all_reduce(result, 1);
    double error = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      error = std::max(error, std::abs(static_cast<double>(result[i]) - sum[i]));
    }
    EXPECT_GT(error, 0);
    EXPECT_LT(error, 0.2 * 4001 * transport->size());
    EXPECT_LT(reducer.last().network_bytes, kCount * sizeof(float) * 2 / 6);
    std::vector<float> zero(kCount);
    reducer.all_reduce(zero, 1);
    EXPECT_EQ(nonzeros(zero), 0U);
  });
}

// Every element, added within nodes before it travels between them.
TEST(Preset, SwCaffeAddsInTwoLevels) {
  run_worlds("two_level:balanced", [](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("swcaffe"));
    const auto nodes = static_cast<std::uint64_t>(reducer.topology().nodes());
    auto gradient = gradient_of(*transport, 0);
    const auto sum = dense_sum(*transport, gradient);
    reducer.all_reduce(gradient, 1);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(static_cast<double>(gradient[i]), sum[i]) << i;
    }
    // A node sends its share of each element twice, whatever its number of ranks; a tenth is for
    // headers, and for shares that are not equal.
    EXPECT_LE(reducer.last().network_bytes,
              11 * 2 * kCount * sizeof(float) * (nodes - 1) / nodes / 10);
  });
}

// A gradient that is sparse by nature arrives whole.
TEST(Preset, ZenLosesNothing) {
  on_ranks([](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("zen"));
    auto gradient = gradient_of(*transport, 0);
    for (std::size_t i = 0; i < kCount; ++i) {
      if ((i + static_cast<std::size_t>(transport->rank())) % 50 != 0) gradient[i] = 0;
    }
    const auto sum = dense_sum(*transport, gradient);
    reducer.all_reduce(gradient, 1);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(static_cast<double>(gradient[i]), sum[i]) << i;
    }
    EXPECT_EQ(nonzeros(reducer.residual(1)), 0U);
    EXPECT_LT(reducer.last().wire_bytes, reducer.last().dense_wire_bytes / 5);
  });
}

// 64 of each block of 4096, in 2 bits; what waits fades.
TEST(Preset, SparseLoCoSelectsInBlocks) {
  on_ranks([](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(2 * 4096), zero(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = static_cast<float>(i * (i < 4096 ? 1 : 1000));
    }
    const auto before = gradient;
    {
      Reducer reducer(transport, preset("sparseloco compressor=blocktopk:64/4096"));
      reducer.all_reduce(gradient, 1);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        EXPECT_EQ(gradient[i] != 0, i % 4096 >= 4096 - 64) << i;
      }
      reducer.all_reduce(zero, 1);
      EXPECT_EQ(reducer.residual(1)[100], 0.95F * before[100]);
    }

    Reducer quantized(transport, preset("sparseloco"));
    gradient = before;
    quantized.all_reduce(gradient, 1);
    const auto others = static_cast<std::uint64_t>(transport->size() - 1);
    EXPECT_LT(quantized.last().wire_bytes, others * (64 + 2 * (16 + 80) + 8));
  });
}

// One of 8 elements is sent. The second gathers momentum until it is larger than the first, whose
// momentum begins anew each time that it is sent.
TEST(Preset, DgcCorrectsMomentumAndMasksIt) {
  EXPECT_EQ(Options::parse("preset=dgc").compressor, "topk:0.001:warmup=1000");
  on_ranks([](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, preset("dgc compressor=topk:0.125"));
    const auto ranks = static_cast<float>(transport->size());
    double velocity = 0, waiting = 0;
    for (int call = 0; call < 4; ++call) {
      std::vector<float> gradient = {10, 1, 0, 0, 0, 0, 0, 0};
      reducer.all_reduce(gradient, 1);
      velocity = 0.9 * velocity + 1;
      waiting += velocity;
      EXPECT_EQ(gradient[0], 10 * ranks);
      EXPECT_NEAR(static_cast<double>(reducer.residual(1)[1]), waiting, 1e-5);
    }
    std::vector<float> gradient = {10, 1, 0, 0, 0, 0, 0, 0};
    reducer.all_reduce(gradient, 1);
    EXPECT_NEAR(static_cast<double>(gradient[1] / ranks), waiting + 0.9 * velocity + 1, 1e-4);
    EXPECT_EQ(reducer.residual(1)[0], 10);
    gradient = {10, 1, 0, 0, 0, 0, 0, 0};
    reducer.all_reduce(gradient, 1);
    EXPECT_EQ(gradient[0], 29 * ranks);
    EXPECT_EQ(reducer.residual(1)[1], 1);
  });
}

}  // namespace
}  // namespace winnow::tests
