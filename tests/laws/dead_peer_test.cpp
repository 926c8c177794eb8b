// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Laws 5 and 10: a rank that does not answer, or is gone, is an error on the others. Then nothing
// is lost, and the survivors finish the sum over another transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/harness/ranks.hpp"
#include "tests/harness/warned_transport.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

enum class Fate { silent, gone };

struct Case {
  Fate fate;
  const char* compressor;
  const char* schedule;
};

/// Returns when all ranks have called it.
void meet(Transport& transport) {
  Workspace workspace;
  const std::byte word{};
  std::vector<std::byte> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather({.workspace = &workspace}, {&word, 1}, all,
                       Deadline::after(std::chrono::seconds(60)));
}

class DeadPeer : public testing::TestWithParam<Case> {};

TEST_P(DeadPeer, IsAnErrorAndTheOthersFinishTheSum) {
  const Case c = GetParam();
  const std::vector<Parameter> parameters = {{1, 5000}, {2, 300, 1}, {3, 2000}};
  for (const int ranks : rank_counts()) {
    if (ranks == 1) continue;  // nobody is left
    run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      const int rank = transports[0]->rank(), last = transports[0]->size() - 1;
      const auto rest = std::move(transports[1]);
      std::vector<int> survivors(static_cast<std::size_t>(last));
      std::iota(survivors.begin(), survivors.end(), 0);
      Options options{.compressor = c.compressor,
                      .schedule = c.schedule,
                      .links = kGivenLinks,
                      .op = ReduceOp::sum,
                      .min_bytes = 0,
                      .deadline = 60};
      const auto transport = std::make_shared<WarnedTransport>(
          c.fate == Fate::gone ? std::move(transports[0]) : transports[0]);
      AllReducer reducer(transport, options);
      TestBucket bucket(parameters);
      bucket.fill(Kind::normal, rank, 0);
      reducer.all_reduce(bucket.segments());
      meet(*rest);               // the failing call must not reach back into this one
      if (rank == last) return;  // its silent first transport lives on
      transport->warned = true;

      std::vector<std::vector<float>> acc;
      for (const Parameter& p : parameters) {
        const auto residual = reducer.residual(p.id);
        acc.emplace_back(residual.begin(), residual.end());
        acc.back().resize(p.count);
      }
      bucket.fill(Kind::normal, rank, 1);
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        for (std::size_t i = 0; i < acc[p].size(); ++i) acc[p][i] += bucket.values()[p][i];
      }
      EXPECT_THROW(reducer.all_reduce(bucket.segments()), CommError);
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        for (const float value : bucket.values()[p]) EXPECT_EQ(value, 0.0F);
        EXPECT_TRUE(same_bits(reducer.residual(parameters[p].id), acc[p])) << "parameter " << p;
      }

      // The survivors sum what they hold.
      AllReducer again(std::shared_ptr<Transport>(rest->subset(survivors)),
                       {.compressor = "none", .op = ReduceOp::sum, .deadline = 60});
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        std::ranges::copy(reducer.residual(parameters[p].id), bucket.values()[p].begin());
      }
      again.all_reduce(bucket.segments());
      std::vector<float> expected(5000);
      std::vector<std::byte> all(expected.size() * sizeof(float) * survivors.size());
      Workspace workspace;
      again.transport().all_gather({.workspace = &workspace}, std::as_bytes(std::span(acc[0])), all,
                                   Deadline::after(std::chrono::seconds(60)));
      const auto* theirs = reinterpret_cast<const float*>(all.data());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        double sum = 0, size = 0;
        for (std::size_t r = 0; r < survivors.size(); ++r) {
          sum += theirs[r * expected.size() + i];
          size += std::fabs(theirs[r * expected.size() + i]);
        }
        EXPECT_NEAR(bucket.values()[0][i], sum, 1e-6 * size) << i;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Laws, DeadPeer,
                         testing::Values(Case{Fate::silent, "topk:0.02", "gather"},
                                         Case{Fate::silent, "topk:0.02", "balanced"},
                                         Case{Fate::silent, "topk:0.02", "doubling"},
                                         Case{Fate::silent, "none", "auto"},
                                         Case{Fate::gone, "topk:0.02", "gather"},
                                         Case{Fate::gone, "topk:0.02", "doubling"},
                                         Case{Fate::gone, "topk:0.02", "balanced"},
                                         Case{Fate::silent, "topk:0.02", "shared"},
                                         Case{Fate::gone, "topk:0.02", "shared"},
                                         Case{Fate::silent, "topk:0.02", "two_level"},
                                         Case{Fate::gone, "topk:0.02", "two_level"}),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

}  // namespace
}  // namespace winnow::tests
