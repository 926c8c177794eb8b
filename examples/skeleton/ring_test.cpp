// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/skeleton/ring.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "examples/skeleton/one_part.hpp"
#include "tests/harness/ranks.hpp"

// The laws (tests/laws) run each schedule of the table, without a line of its own. This one is in
// no table, so its test runs one part by it.

namespace winnow::tests {
namespace {

/// Distinct whole numbers, whose sums are exact in any order.
std::vector<float> gradient_of(int rank, std::size_t count) {
  std::vector<float> gradient(count);
  for (std::size_t i = 0; i < count; ++i) {
    gradient[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(rank) * 131) % 4001);
  }
  return gradient;
}

TEST(Ring, SumsWhatAllRanksHave) {
  const auto none = compress::make_compressor("none");
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& world) {
      for (const std::size_t count : {1U, 5U, 64U, 3001U}) {
        std::vector<float> expected(count);
        for (int rank = 0; rank < world->size(); ++rank) {
          const std::vector<float> gradient = gradient_of(rank, count);
          for (std::size_t i = 0; i < count; ++i) expected[i] += gradient[i];
        }
        EXPECT_EQ(run_part(comm::kRing, *world, *none, gradient_of(world->rank(), count)).sum,
                  expected);
      }
    });
  }
}

// `threshold` leaves the length of a message to the gradient.
TEST(Ring, DeliversTheMessagesOfGather) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& world) {
      for (const char* specification : {"topk:0.01", "topk:0.1,int8", "threshold:3000"}) {
        SCOPED_TRACE(specification);
        const auto compressor = compress::make_compressor(specification);
        const std::vector<float> gradient = gradient_of(world->rank(), 3001);
        const Ran ring = run_part(comm::kRing, *world, *compressor, gradient);
        const Ran gather = run_part(comm::kGather, *world, *compressor, gradient);
        EXPECT_EQ(ring.messages, gather.messages);
        EXPECT_EQ(ring.sum, gather.sum);
      }
    });
  }
}

TEST(Ring, SendsTheBytesOfItsCostRow) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& world) {
      const auto compressor = compress::make_compressor("topk:0.01");
      const comm::CostShape shape{.ranks = world->size(),
                                  .count = 3001,
                                  .k = compressor->kept(3001),
                                  .codings = compressor->codings()};
      const Ran ran = run_part(comm::kRing, *world, *compressor, gradient_of(world->rank(), 3001));
      EXPECT_EQ(ran.stats.wire_bytes, comm::kRing.wire_bytes(shape));
    });
  }
}

}  // namespace
}  // namespace winnow::tests
