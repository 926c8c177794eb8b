// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Stats report the bytes that the transport moved, which are as few as promised; and naturally
// sparse gradients come out whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

// A rank sends the stated bytes for any support: the sums of owners have a fixed size, and owners
// get k elements in all.
TEST(WireBytes, OfBalancedEqualTheTransportsCount) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.01,int8", .schedule = "balanced"});
      for (int step = 0; step < 3; ++step) {
        auto gradient = make_gradient(Kind::heavy_tailed, 100000, transport->rank(), step, 1);
        const auto before = transport->bytes_sent();
        reducer.all_reduce(gradient, 0);
        // The first call compares plans, in headers.
        const std::uint64_t headers =
            step > 0 ? 0 : 64 * static_cast<std::uint64_t>(transport->size() - 1);
        EXPECT_EQ(reducer.last().wire_bytes + headers, transport->bytes_sent() - before);
        EXPECT_GE(reducer.last().kept, 1000U);
        EXPECT_LE(reducer.last().kept, 1002U);
      }
    });
  }
}

// No message of doubling is longer than every position in float32.
TEST(WireBytes, OfDoublingEqualTheTransportsCount) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.45", .schedule = "doubling"});
      for (int step = 0; step < 2; ++step) {
        auto gradient = make_gradient(Kind::normal, 50000, transport->rank(), step, 1);
        const auto before = transport->bytes_sent();
        reducer.all_reduce(gradient, 0);
        const Stats last = reducer.last();
        EXPECT_EQ(last.kept, 22500U);
        if (step == 0) continue;
        EXPECT_EQ(last.wire_bytes, transport->bytes_sent() - before);
        EXPECT_LE(last.wire_bytes, 3 * (64 + 4 * gradient.size()));  // messages of 7 ranks
      }
    });
  }
}

// No message says a position, whatever the schedule: as many values as gather's and balanced's
// lists have, and doubling's messages do not grow.
TEST(WireBytes, OfDrawnPositionsAreThoseOfValues) {
  for (const char* schedule : {"gather", "doubling", "balanced"}) {
    run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "randomk:0.01", .schedule = schedule});
      for (int step = 0; step < 2; ++step) {
        auto gradient = make_gradient(Kind::normal, 102400, transport->rank(), step, 1);
        const auto before = transport->bytes_sent();
        reducer.all_reduce(gradient, 0);
        if (step == 0) continue;
        const Stats last = reducer.last();
        EXPECT_EQ(last.wire_bytes, transport->bytes_sent() - before);
        if (transport->size() != 4) continue;
        const bool gather = schedule == std::string_view("gather");
        const bool doubling = schedule == std::string_view("doubling");
        const std::uint64_t messages = gather ? 3 : doubling ? 2 : 6;
        const std::uint64_t values = messages * 1024 / (gather || doubling ? 1 : 4);
        EXPECT_EQ(last.wire_bytes, messages * 64 + 4 * values) << schedule;
      }
    });
  }
}

// A naturally sparse gradient: 1 %, spread evenly, elsewhere on each rank. All of it comes out at
// once, and no more travels than its union needs.
TEST(WireBytes, OfALosslessUnion) {
  constexpr std::uint64_t kCount = 1048576, kEvery = 100;
  const auto place = [](std::uint64_t block, std::uint64_t rank) {
    return kEvery * block + 14 * rank + (block * 0x9E3779B97F4A7C15U >> 32) % 14;
  };
  for (const auto& target :
       {std::pair{"gather", 162500U}, {"doubling", 162500U}, {"balanced", 195000U}}) {
    const char* const schedule = target.first;
    run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
      const auto ranks = static_cast<std::uint64_t>(transport->size());
      const auto self = static_cast<std::uint64_t>(transport->rank());
      AllReducer reducer(transport,
                         {.compressor = "threshold", .schedule = schedule, .op = ReduceOp::sum});
      std::vector<float> gradient(kCount), expected(kCount);
      for (std::uint64_t block = 0; block < kCount / kEvery; ++block) {
        for (std::uint64_t rank = 0; rank < ranks; ++rank) {
          expected[place(block, rank)] = static_cast<float>(1 + block % 1000 + rank);
        }
        gradient[place(block, self)] = expected[place(block, self)];
      }
      const auto before = transport->bytes_sent();
      reducer.all_reduce(gradient, 0);
      EXPECT_TRUE(same_bits(gradient, expected)) << schedule;
      EXPECT_EQ(std::ranges::count(reducer.residual(0), 0.0F), kCount) << schedule;
      const Stats last = reducer.last();
      EXPECT_EQ(last.wire_bytes + 64 * (ranks - 1), transport->bytes_sent() - before);
      EXPECT_GE(last.kept, kCount / kEvery * (self == 0 ? 1 : 0));
      if (ranks == 4) {
        EXPECT_LE(last.wire_bytes, target.second) << schedule;
      }
    });
  }
}

// Some ranks' messages carry every position, others a few, others none.
TEST(LosslessUnion, OfDenseAndSparseGradients) {
  const std::vector<Parameter> parameters = {{1, 9001}, {2, 70}};
  for (const char* schedule :
       {"gather", "doubling", "balanced", "two_level:gather", "two_level:balanced"}) {
    run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(
          transport,
          {.compressor = "threshold", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0});
      TestBucket bucket(parameters);
      for (int step = 0; step < 3; ++step) {
        const auto gradient = [&](int rank, std::size_t p, std::size_t i) {
          const int kind = (rank + step) % 3;
          const bool named = kind == 0 || (kind == 1 && (i + p) % 50 == 0);
          return named ? static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 100) : 0.0F;
        };
        for (std::size_t p = 0; p < parameters.size(); ++p)
          for (std::size_t i = 0; i < parameters[p].count; ++i)
            bucket.values()[p][i] = gradient(transport->rank(), p, i);
        reducer.all_reduce(bucket.segments());
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          std::vector<float> sum(parameters[p].count);
          for (int rank = 0; rank < transport->size(); ++rank)
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient(rank, p, i);
          EXPECT_TRUE(same_bits(bucket.values()[p], sum)) << schedule << " step " << step;
          for (const float left : reducer.residual(parameters[p].id)) EXPECT_EQ(left, 0.0F);
        }
      }
    });
  }
}

// For any gradient, no message is longer than all elements.
TEST(WireBytes, OfAThresholdAreBounded) {
  for (const char* schedule : {"gather", "doubling", "balanced"}) {
    for (const int ranks : rank_counts()) {
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
        AllReducer reducer(transport, {.compressor = "threshold", .schedule = schedule});
        std::vector<float> gradient(40000, 1.0F);
        gradient[7] = 0;
        reducer.all_reduce(gradient, 0);
        const auto peers = static_cast<std::uint64_t>(transport->size() - 1);
        const std::uint64_t all = 4 * gradient.size();
        const std::uint64_t most = all + 64 + (transport->sizes_travel() ? 0 : 8);
        const bool balanced = schedule == std::string_view("balanced");
        EXPECT_LE(reducer.last().wire_bytes,
                  balanced ? 2 * (most - all) * peers + 2 * all : peers * most)
            << schedule;
      });
    }
  }
}

TEST(WireBytes, StatsEqualTheTransportsCount) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.01", .schedule = "gather"});
      auto gradient = make_gradient(Kind::normal, 100000, transport->rank(), 0, 1);
      reducer.all_reduce(gradient, 0);
      gradient = make_gradient(Kind::normal, 100000, transport->rank(), 1, 1);
      const auto before = transport->bytes_sent();
      reducer.all_reduce(gradient, 0);
      EXPECT_EQ(reducer.last().wire_bytes, transport->bytes_sent() - before);
      EXPECT_EQ(reducer.last().kept, 1000U);
      if (transport->size() == 4) {
        EXPECT_GT(static_cast<double>(reducer.last().dense_wire_bytes),
                  35.0 * static_cast<double>(reducer.last().wire_bytes));
      }
    });
  }
}

}  // namespace
}  // namespace winnow::tests
