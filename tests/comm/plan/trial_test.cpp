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
#include <utility>
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

/// What a trial of gather, dense and dense by the ring has done.
struct Outcome {
  std::string kept;                // "schedule: reason"
  std::vector<std::size_t> plans;  // of its calls, in order
};

/// A trial whose calls take `seconds(rank, plan, call)`, where a plan's calls are counted through.
template <class Seconds>
Outcome race(Transport& transport, double enough, const Seconds& seconds) {
  std::vector<Bucket> plans(3);
  plans[0].words.schedule = "gather";
  plans[0].compressed = 1;
  plans[0].words.reason = "predicted to be the fastest";
  plans[1].words.schedule = plans[2].words.schedule = "dense";
  plans[1].count = 1;
  plans[2].count = 2;
  plans[2].words.note = ", dense by Winnow's ring";
  Trial trial(std::move(plans), kTimed, enough);
  Outcome outcome;
  std::array<std::size_t, 3> calls{};
  Workspace workspace;
  for (;;) {
    if (trial.due()) {
      const Bucket* const kept = trial.compare(transport, {.workspace = &workspace},
                                               Deadline::after(std::chrono::seconds(60)));
      if (kept == nullptr) continue;
      outcome.kept = kept->words.schedule + ": " + kept->words.reason;
      return outcome;
    }
    const Bucket& plan = trial.plan();
    const std::size_t number = plan.count;  // 0 for gather
    EXPECT_TRUE(plan.words.reason.ends_with(", which is tried out")) << plan.words.reason;
    const std::size_t call = calls[number]++;
    EXPECT_EQ(trial.counts(), call % kCallsOfAPlan >= Trial::kSettling);
    outcome.plans.push_back(number);
    trial.record(seconds(transport.rank(), number, call));
    EXPECT_LE(outcome.plans.size(), Trial::most_calls(3, kTimed));
  }
}

/// So many calls of these plans, by turns.
void expect_turns(std::vector<std::size_t>& plans, const std::vector<std::size_t>& turns) {
  ASSERT_GE(plans.size(), turns.size() * kCallsOfAPlan);
  for (std::size_t i = 0; i < turns.size() * kCallsOfAPlan; ++i) {
    EXPECT_EQ(plans[i], turns[i % turns.size()]) << "call " << i;
  }
  plans.erase(plans.begin(),
              plans.begin() + static_cast<std::ptrdiff_t>(turns.size() * kCallsOfAPlan));
}

TEST(Trial, EveryRankStaysWithThePlanOfTheLeastMedianOfTheSlowestRanks) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      // Another rank is the slowest in each call. Settling calls and one disturbed call do not
      // count.
      const auto seconds = [&](std::array<double, 3> of_plans) {
        return [=](int rank, std::size_t plan, std::size_t number) {
          const std::size_t call = number % kCallsOfAPlan;
          if (call < Trial::kSettling) return plan == 0 ? 100.0 : 0.0;
          if (call == Trial::kSettling + 1) return 50.0;
          const bool slowest = static_cast<int>(call) % transport->size() == rank;
          return slowest ? of_plans[plan] : of_plans[2 - plan] / 1000;
        };
      };
      const auto kept = [&](std::array<double, 3> of_plans) {
        return race(*transport, 0, seconds(of_plans)).kept;
      };
      EXPECT_EQ(kept({0.003, 0.004, 0.005}),
                "gather: took 3 ms by gather, 4 ms by dense, 5 ms by dense by Winnow's ring, "
                "medians of 3 calls");
      EXPECT_EQ(kept({0.004, 0.0031, 0.003}),
                "dense: took 4 ms by gather, 3.1 ms by dense, 3 ms by dense by Winnow's ring, "
                "medians of 3 to 9 calls, dense by Winnow's ring");
      EXPECT_EQ(kept({0.95, 1, 1.2}),
                "dense: took 950 ms by gather, 1e+03 ms by dense, 1.2e+03 ms by dense by Winnow's "
                "ring, medians of 3 to 9 calls");
    });
  }
}

TEST(Trial, PlansThatAreCloseRaceOnToAndFro) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    // In the first round dense is ahead, since gather has to take 0.9 of its time.
    const auto close = [](int, std::size_t plan, std::size_t call) {
      if (plan == 2) return 2.0;
      if (plan == 1) return 1.0;
      return call < kCallsOfAPlan ? 0.95 : 0.8;
    };
    Outcome outcome = race(*transport, 0, close);
    EXPECT_EQ(outcome.kept,
              "gather: took 800 ms by gather, 1e+03 ms by dense, 2e+03 ms by dense by Winnow's "
              "ring, medians of 3 to 9 calls");
    expect_turns(outcome.plans, {0});
    expect_turns(outcome.plans, {1, 2});
    expect_turns(outcome.plans, {1});
    expect_turns(outcome.plans, {0});
    expect_turns(outcome.plans, {0});
    expect_turns(outcome.plans, {1});
    EXPECT_TRUE(outcome.plans.empty());

    // Two that stay close race all rounds.
    outcome = race(*transport, 0, [](int, std::size_t plan, std::size_t) {
      return std::array{2.0, 1.0, 1.01}[plan];
    });
    EXPECT_TRUE(outcome.kept.starts_with("dense: took")) << outcome.kept;
    EXPECT_TRUE(outcome.kept.ends_with("medians of 3 to 9 calls")) << outcome.kept;
    expect_turns(outcome.plans, {0});
    expect_turns(outcome.plans, {1, 2});
    expect_turns(outcome.plans, {2, 1});
    expect_turns(outcome.plans, {1, 2});
    EXPECT_TRUE(outcome.plans.empty());
  });
}

TEST(Trial, DenseIsNotTriedWhereThePredictionHolds) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const auto takes = [](double gather) {
      return [=](int, std::size_t plan, std::size_t) { return plan == 0 ? gather : 1.0; };
    };
    Outcome outcome = race(*transport, 0.25, takes(0.2));
    EXPECT_EQ(outcome.kept,
              "gather: predicted to be the fastest; took 200 ms by gather, median of 3 calls");
    expect_turns(outcome.plans, {0});
    EXPECT_TRUE(outcome.plans.empty());

    outcome = race(*transport, 0.25, takes(0.3));
    EXPECT_TRUE(outcome.kept.starts_with("gather: took 300 ms by gather, 1e+03 ms by dense"))
        << outcome.kept;
    expect_turns(outcome.plans, {0});
    expect_turns(outcome.plans, {1, 2});
    EXPECT_TRUE(outcome.plans.empty());

    outcome = race(*transport, 0.25, takes(3));
    EXPECT_TRUE(outcome.kept.starts_with("dense: took 3e+03 ms by gather")) << outcome.kept;
  });
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
      constexpr std::size_t kLeast = 2 * kCallsOfAPlan;
      std::size_t trial = 0;  // its calls
      for (std::size_t call = 0; trial == 0 || call < trial + 3; ++call) {
        // Small integers, so that sums are exact in any order.
        for (std::size_t i = 0; i < kCount; ++i) {
          values[i] = seed * static_cast<float>((i * 7 + call) % 13);
          given[i] += values[i];
        }
        reducer.all_reduce(values, 0);
        for (std::size_t i = 0; i < kCount; ++i) applied[i] += values[i];
        schedules.push_back(reducer.last().schedule);
        EXPECT_EQ(reducer.bucket_stats().front().trying,
                  reducer.last().reason.ends_with(", which is tried out"));
        if (reducer.last().reason.ends_with(", which is tried out")) {
          EXPECT_EQ(trial, 0U) << reducer.last().reason;
        } else {
          if (trial == 0) trial = call;
          EXPECT_NE(reducer.last().reason.find("medians of "), std::string::npos)
              << reducer.last().reason;
        }
        if (trial != 0 && call > trial) {
          EXPECT_EQ(reducer.last().allocations, 0U) << call;
        }
        ASSERT_LE(call, Trial::most_calls(2, kTimed) + 3);
      }
      EXPECT_GE(trial, kLeast);
      for (std::size_t call = 0; call < kLeast; ++call) {
        EXPECT_EQ(schedules[call] == "dense", call >= kCallsOfAPlan) << call;
      }
      for (std::size_t call = trial; call < schedules.size(); ++call) {
        EXPECT_EQ(schedules[call], schedules[trial]);
      }
      const BucketStats bucket = reducer.bucket_stats().front();
      EXPECT_EQ(bucket.compressed, schedules.back() == "dense" ? 0 : kCount);
      EXPECT_EQ(bucket.totals.schedule, schedules.back());
      EXPECT_EQ(bucket.totals.calls, schedules.size());
      std::uint64_t bytes = 0;
      for (const Stats& stats : reducer.schedule_stats()) {
        EXPECT_EQ(stats.calls, std::ranges::count(schedules, stats.schedule));
        EXPECT_NE(stats.calls, 0U);
        bytes += stats.wire_bytes;
      }
      EXPECT_EQ(bytes, reducer.totals().wire_bytes);

      // Everything that any rank contributed is in the sums or in a residual.
      std::vector<float> left(reducer.residual(0).begin(), reducer.residual(0).end());
      { const AllReducer ends = std::move(reducer); }  // and leaves the transport
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
        EXPECT_EQ(transport->calls, call / 2 + 1) << call;  // by turns
        EXPECT_NE(reducer.last().reason.find(", which is tried out"), std::string::npos);
      }
      std::size_t calls = 2 * kCallsOfAPlan;
      do {
        reducer.all_reduce(bucket, id);
        EXPECT_LE(++calls, Trial::most_calls(2, kTimed) + 1);
      } while (reducer.last().reason.ends_with(", which is tried out"));
      const bool by_ring = reducer.last().reason.ends_with(", dense by Winnow's ring");
      transport->calls = 0;
      reducer.all_reduce(bucket, id);
      EXPECT_EQ(transport->calls, by_ring ? 0 : 1);
      EXPECT_EQ(reducer.last().schedule, "dense");
      return reducer.last().reason;
    };
    constexpr const char* kNames = " ms by dense by Winnow's ring, medians of ";
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
