// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// If predictions are close, `auto` tries a compressed and the dense plan. The machine decides which
// is faster; but all ranks must take the same one and lose nothing.
#include "comm/plan/trial.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

using comm::Bucket;
using comm::Trial;

constexpr int kTimed = 3;
constexpr std::size_t kCallsOfAPlan = Trial::kSettling + kTimed;

/// The reason of the plan chosen by a trial whose calls take `seconds(rank, plan, call)`.
template <class Seconds>
std::string settle(Transport& transport, const Seconds& seconds) {
  Bucket first, second;
  first.schedule = "gather";
  second.schedule = "dense";
  Trial trial(std::move(first), std::move(second), kTimed);
  for (std::size_t plan = 0; plan < 2; ++plan) {
    for (std::size_t call = 0; call < kCallsOfAPlan; ++call) {
      EXPECT_FALSE(trial.complete());
      EXPECT_EQ(trial.plan().schedule, plan == 0 ? "gather" : "dense") << call;
      trial.record(seconds(transport.rank(), plan, call));
    }
  }
  EXPECT_TRUE(trial.complete());
  Workspace workspace;
  const Bucket& settled =
      trial.settle(transport, {.workspace = &workspace}, Deadline::after(std::chrono::seconds(60)));
  return settled.schedule + ": " + settled.reason;
}

TEST(Trial, EveryRankStaysWithThePlanOfTheLesserMedian) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      // Ranks that wait for the last take longer. Settling calls and one disturbed call do not
      // count.
      const auto seconds = [&](double compressed, double dense) {
        return [=](int rank, std::size_t plan, std::size_t call) {
          if (call < Trial::kSettling) return plan == 0 ? 100.0 : 0.0;
          if (call == Trial::kSettling + 1) return 50.0;
          const int waiting = (rank + static_cast<int>(call)) % transport->size();
          return (plan == 0 ? compressed : dense) + waiting;
        };
      };
      EXPECT_EQ(settle(*transport, seconds(0.003, 0.004)),
                "gather: took 3 ms by gather, 4 ms by dense, medians of 3 calls");
      EXPECT_EQ(settle(*transport, seconds(0.004, 0.003)),
                "dense: took 4 ms by gather, 3 ms by dense, medians of 3 calls");
      EXPECT_EQ(settle(*transport, seconds(0.95, 1)),
                "dense: took 950 ms by gather, 1e+03 ms by dense, medians of 3 calls");
    });
  }
}

/// `auto` predicts 0.3 to 0.6 of dense's time for 100,000 elements of few ranks on such links.
constexpr const char* kClose = "intra=1us,2GB/s+inter=1us,2GB/s+pass=10GB/s";
constexpr std::uint64_t kCount = 100'000;

Options close_options() {
  return {.compressor = "topk:0.01", .links = kClose, .trial_calls = kTimed, .op = ReduceOp::sum};
}

TEST(Trial, OfAutoTakesBothWaysAndLosesNothing) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1) return;  // one rank is always dense
      AllReducer reducer(transport, close_options());
      const auto seed = static_cast<float>(transport->rank() + 1);
      std::vector<float> values(kCount), applied(kCount), given(kCount);
      std::vector<std::string> schedules;
      constexpr std::size_t kCalls = 2 * kCallsOfAPlan + 3;
      for (std::size_t call = 0; call < kCalls; ++call) {
        // Small integers, so that sums are exact in any order.
        for (std::size_t i = 0; i < kCount; ++i) {
          values[i] = seed * static_cast<float>((i * 7 + call) % 13);
          given[i] += values[i];
        }
        reducer.all_reduce(values, 0);
        for (std::size_t i = 0; i < kCount; ++i) applied[i] += values[i];
        schedules.push_back(reducer.last().schedule);
        if (call > 2 * kCallsOfAPlan) {
          EXPECT_EQ(reducer.last().allocations, 0U) << call;
        }
        const bool open = call < 2 * kCallsOfAPlan;
        EXPECT_NE(reducer.last().reason.find(open ? ", which is tried out" : "medians of 3 calls"),
                  std::string::npos)
            << reducer.last().reason;
      }
      for (std::size_t call = 0; call < 2 * kCallsOfAPlan; ++call) {
        EXPECT_EQ(schedules[call] == "dense", call >= kCallsOfAPlan) << call;
      }
      for (std::size_t call = 2 * kCallsOfAPlan; call < kCalls; ++call) {
        EXPECT_EQ(schedules[call], schedules[2 * kCallsOfAPlan]);
      }
      const BucketStats bucket = reducer.bucket_stats().front();
      EXPECT_EQ(bucket.compressed, schedules.back() == "dense" ? 0 : kCount);
      EXPECT_EQ(bucket.totals.schedule, schedules.back());
      EXPECT_EQ(bucket.totals.calls, kCalls);

      // Everything that any rank contributed is in the sums or in a residual.
      std::vector<float> left(reducer.residual(0).begin(), reducer.residual(0).end());
      AllReducer plain(transport, {.compressor = "none", .op = ReduceOp::sum});
      plain.all_reduce(given, 1);
      plain.all_reduce(left, 2);
      for (std::size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(applied[i] + left[i], given[i]) << "position " << i;
        if (applied[i] + left[i] != given[i]) break;
      }
    });
  }
}

TEST(Trial, IsNotMadeWhereNoneIsAskedFor) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Options options = close_options();
    options.trial_calls = 0;
    AllReducer reducer(transport, options);
    std::vector<float> values(kCount, 1);
    reducer.all_reduce(values, 0);
    EXPECT_EQ(reducer.last().reason.find("tried out"), std::string::npos) << reducer.last().reason;
  });
}

/// Its all_gather fails on request.
class FailingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void all_gather(const Exec& exec, std::span<const std::byte> mine, std::span<std::byte> all,
                  Deadline deadline) override {
    if (fails) throw CommError("the link is down");
    ForwardingTransport::all_gather(exec, mine, all, deadline);
  }
  bool fails = false;
};

TEST(Trial, ThatCannotBeSettledLosesNothing) {
  run_ranks(2, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
    if (transports[0]->size() == 1) return;  // one rank is always dense
    const auto transport = std::make_shared<FailingTransport>(transports[0]);
    AllReducer reducer(transport, close_options());
    std::vector<float> values(kCount);
    const auto gradient = [](std::size_t i) { return static_cast<float>(i % 7); };
    for (std::size_t call = 0; call < 2 * kCallsOfAPlan; ++call) {
      std::ranges::fill(values, 1.0F);
      reducer.all_reduce(values, 0);
    }
    // Nobody fails before all have made the calls of the trial.
    std::byte here{};
    std::vector<std::byte> all(static_cast<std::size_t>(transport->size()));
    transports[1]->all_gather({}, {&here, 1}, all, Deadline::never());
    transport->fails = true;
    for (std::size_t i = 0; i < kCount; ++i) values[i] = gradient(i);
    EXPECT_THROW(reducer.all_reduce(values, 0), CommError);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(values[i], 0);
      EXPECT_EQ(reducer.residual(0)[i], gradient(i)) << "position " << i;
      if (reducer.residual(0)[i] != gradient(i)) break;
    }
  });
}

}  // namespace
}  // namespace winnow::tests
