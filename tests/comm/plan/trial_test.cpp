// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// If predictions are close, `auto` tries a compressed and the dense plan. The machine decides which
// is faster; but all ranks must take the same one and lose nothing.
#include "comm/plan/trial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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
  std::vector<Bucket> plans(3);
  plans[0].schedule = "gather";
  plans[0].compressed = 1;
  plans[1].schedule = plans[2].schedule = "dense";
  plans[2].note = ", dense by Winnow's ring";
  Trial trial(std::move(plans), kTimed);
  for (std::size_t plan = 0; plan < 3; ++plan) {
    for (std::size_t call = 0; call < kCallsOfAPlan; ++call) {
      EXPECT_FALSE(trial.complete());
      EXPECT_EQ(trial.counts(), call >= Trial::kSettling);
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

TEST(Trial, EveryRankStaysWithThePlanOfTheLeastMedianOfTheSlowestRanks) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      // Another rank is the slowest in each call. Settling calls and one disturbed call do not
      // count.
      const auto seconds = [&](std::array<double, 3> of_plans) {
        return [=](int rank, std::size_t plan, std::size_t call) {
          if (call < Trial::kSettling) return plan == 0 ? 100.0 : 0.0;
          if (call == Trial::kSettling + 1) return 50.0;
          const bool slowest = static_cast<int>(call) % transport->size() == rank;
          return slowest ? of_plans[plan] : of_plans[2 - plan] / 1000;
        };
      };
      EXPECT_EQ(settle(*transport, seconds({0.003, 0.004, 0.005})),
                "gather: took 3 ms by gather, 4 ms by dense, 5 ms by dense by Winnow's ring, "
                "medians of 3 calls");
      EXPECT_EQ(settle(*transport, seconds({0.004, 0.0031, 0.003})),
                "dense: took 4 ms by gather, 3.1 ms by dense, 3 ms by dense by Winnow's ring, "
                "medians of 3 calls, dense by Winnow's ring");
      EXPECT_EQ(settle(*transport, seconds({0.95, 1, 1.01})),
                "dense: took 950 ms by gather, 1e+03 ms by dense, 1.01e+03 ms by dense by Winnow's "
                "ring, medians of 3 calls");
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

TEST(Trial, OfDenseTriesTheTransportsOwnAllreduceAndTheRing) {
  run_ranks(3, [&](const std::shared_ptr<Transport>& inner) {
    const auto transport = std::make_shared<NativeTransport>(inner);
    if (transport->size() == 1) return;
    const auto reason_of = [&](const Options& options, const Elements& bucket, std::uint64_t id) {
      AllReducer reducer(transport, options);
      transport->calls = 0;
      for (std::size_t call = 0; call < 2 * kCallsOfAPlan; ++call) {
        reducer.all_reduce(bucket, id);
        EXPECT_EQ(transport->calls, std::min(call + 1, kCallsOfAPlan)) << call;
        EXPECT_NE(reducer.last().reason.find(", which is tried out"), std::string::npos);
      }
      reducer.all_reduce(bucket, id);
      const bool by_ring = reducer.last().reason.ends_with(", dense by Winnow's ring");
      EXPECT_EQ(transport->calls, kCallsOfAPlan + (by_ring ? 0 : 1));
      EXPECT_EQ(reducer.last().schedule, "dense");
      return reducer.last().reason;
    };
    constexpr const char* kNames = " ms by dense by Winnow's ring, medians of 3 calls";
    const Options none{.compressor = "none", .trial_calls = kTimed, .op = ReduceOp::sum};
    std::vector<float> gradient(65536, 0.0F);
    std::vector<double> plain(32768, 0.0);
    EXPECT_NE(reason_of(none, gradient, 1).find(kNames), std::string::npos);
    EXPECT_NE(reason_of(none, plain, 2).find(kNames), std::string::npos);

    // Where it is known, named, too short or not wanted there is no race.
    const auto calls_natively = [&](const Options& options, std::size_t count) {
      AllReducer reducer(transport, options);
      const Elements bucket(gradient.data(), count, ElementType::float32);
      transport->calls = 0;
      for (std::size_t call = 0; call < 2 * kCallsOfAPlan; ++call) reducer.all_reduce(bucket, 1);
      EXPECT_EQ(reducer.last().reason.find("tried out"), std::string::npos);
      return transport->calls == 2 * kCallsOfAPlan;
    };
    EXPECT_TRUE(calls_natively(none, 65535));
    Options options = none;
    options.schedule = "dense";
    EXPECT_TRUE(calls_natively(options, 65536));
    options = none;
    options.links = "pass=10GB/s";
    EXPECT_TRUE(calls_natively(options, 65536));
    options = none;
    options.trial_calls = 0;
    EXPECT_TRUE(calls_natively(options, 65536));
    options = none;
    options.deadline = 60;
    EXPECT_FALSE(calls_natively(options, 65536));  // by the ring from the first call on
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
