// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Sums that do not fit into 16 bits: the largest finite value is delivered, and the rest waits in
// residuals. Numbers are such that float32 holds every sum and 16 bits every mean, so what was
// given equals what was applied and what waits, exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/half.hpp"
#include "tests/harness/nodes_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"

namespace winnow::tests {
namespace {

constexpr float kLargest = 65504;
constexpr float kUnit = 32;  // the step of the largest numbers of fp16

/// A parameter in fp16 on one rank, and what has become of it in double.
class Parameter {
 public:
  Parameter(std::uint64_t id, std::size_t count, std::uint8_t dimensions = 2)
      : id_(id), dimensions_(dimensions), halves_(count), given_(count), applied_(count) {}

  /// `value(i)` of this rank; all ranks together give sum_of(i).
  template <class Value, class Sum>
  void give(const Value& value, const Sum& sum_of) {
    std::vector<float> values(halves_.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = value(i);
      given_[i] += sum_of(i);
    }
    kernels::narrow({}, ElementType::fp16, values, halves_);
  }
  void give_nothing() {
    give([](std::size_t) { return 0.0F; }, [](std::size_t) { return 0.0; });
  }
  Segment segment() {
    return {.elements = {halves_.data(), halves_.size(), ElementType::fp16},
            .id = id_,
            .dimensions = dimensions_};
  }
  std::vector<float> result() const {
    std::vector<float> values(halves_.size());
    kernels::widen({}, ElementType::fp16, halves_, values);
    return values;
  }
  /// Counts the results of a call, each of which stands for `times` in the sum. Returns how many
  /// are not finite.
  std::size_t apply(double times) {
    const std::vector<float> values = result();
    for (std::size_t i = 0; i < values.size(); ++i) {
      applied_[i] += times * static_cast<double>(values[i]);
    }
    return static_cast<std::size_t>(
        std::ranges::count_if(values, [](float x) { return !std::isfinite(x); }));
  }
  /// The most by which what was given differs from what was applied and what waits in `reducer` on
  /// all ranks, whose residuals `exact` sums up.
  double lost(const Reducer& reducer, Reducer& exact) const {
    const std::vector<float> waiting = waiting_of(reducer, exact);
    double most = 0;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      most = std::max(most, std::abs(given_[i] - applied_[i] - static_cast<double>(waiting[i])));
    }
    return most;
  }
  bool waits(const Reducer& reducer, Reducer& exact) const {
    return std::ranges::any_of(waiting_of(reducer, exact), [](float left) { return left != 0; });
  }

 private:
  std::vector<float> waiting_of(const Reducer& reducer, Reducer& exact) const {
    std::vector<float> waiting = reducer.residual(id_);
    waiting.resize(halves_.size());
    exact.all_reduce(waiting, id_);
    return waiting;
  }

  std::uint64_t id_;
  std::uint8_t dimensions_;
  std::vector<std::uint16_t> halves_;
  std::vector<double> given_, applied_;
};

enum class Gradients { same, random };

/// A whole number of `unit`, about 1000: the same everywhere, or another one for each rank, step
/// and element.
float about_1000(Gradients gradients, int rank, int step, std::size_t i, float unit) {
  if (gradients == Gradients::same) return unit * std::round(1000 / unit);
  std::uint64_t h = i * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(rank * 1000 + step);
  h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9U;
  const auto more = static_cast<float>((h >> 40) % 3);
  return unit * (std::round(1000 / unit) - 1 + more);
}

/// `transport` in two levels if the schedule has them.
std::shared_ptr<Transport> on_nodes(const std::shared_ptr<Transport>& transport,
                                    const std::string& schedule) {
  return std::make_shared<NodesTransport>(transport, per_node(schedule));
}

struct Training {
  const char* schedule;
  Gradients gradients = Gradients::random;
  int steps_of_zero = 120;  // as many as it takes to send what waits
  const char* compressor = "topk:0.01";
};
class TooLargeInTraining : public testing::TestWithParam<Training> {};
INSTANTIATE_TEST_SUITE_P(GatherTooLarge, TooLargeInTraining,
                         testing::Values(Training{"gather"}, Training{"gather", Gradients::same}));
// Owners, and a support for all ranks, deliver half as many elements as two ranks do.
INSTANTIATE_TEST_SUITE_P(
    TooLarge, TooLargeInTraining,
    testing::Values(Training{"gather", Gradients::random, 160, "topk:0.01,fp16"},
                    Training{"doubling"}, Training{"doubling", Gradients::same},
                    Training{"balanced", Gradients::random, 170},
                    Training{"shared", Gradients::random, 170}, Training{"two_level:gather"},
                    Training{"two_level:balanced", Gradients::random, 170}));

// What waits grows to a hundred gradients of about 1000, so that means pass 65504.
TEST_P(TooLargeInTraining, NothingIsLostAndNothingStays) {
  const Training training = GetParam();
  const int ranks = per_node(training.schedule) == 0 ? 2 : 4;
  if (rank_counts().size() == 1 && rank_counts().front() != ranks) {
    GTEST_SKIP() << "means of another number of ranks are rounded, or fit";
  }
  run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
    const int size = transports[0]->size(), rank = transports[0]->rank();
    Reducer reducer(
        on_nodes(transports[0], training.schedule),
        {.compressor = training.compressor, .schedule = training.schedule, .min_bytes = 0});
    Reducer exact(transports[1], {.compressor = "none", .op = ReduceOp::sum});
    Parameter parameter(0, 10'000);
    const float unit = kUnit * static_cast<float>(size);
    std::size_t not_finite = 0, clipped = 0;
    constexpr int kSteps = 120;
    for (int step = 0; step < kSteps + training.steps_of_zero; ++step) {
      if (step < kSteps) {
        parameter.give(
            [&](std::size_t i) { return about_1000(training.gradients, rank, step, i, unit); },
            [&](std::size_t i) {
              double sum = 0;
              for (int r = 0; r < size; ++r)
                sum += about_1000(training.gradients, r, step, i, unit);
              return sum;
            });
      } else {
        parameter.give_nothing();
      }
      const Segment segment = parameter.segment();
      reducer.all_reduce({&segment, 1});
      not_finite += parameter.apply(size);
      const auto result = parameter.result();
      clipped += static_cast<std::size_t>(std::ranges::count(result, kLargest));
      if (step % 40 == 39) {
        EXPECT_EQ(parameter.lost(reducer, exact), 0) << "step " << step;
      }
    }
    EXPECT_EQ(not_finite, 0U);
    EXPECT_GT(clipped, 0U);
    EXPECT_EQ(parameter.lost(reducer, exact), 0);
    EXPECT_FALSE(parameter.waits(reducer, exact));
  });
}

struct Case {
  const char* schedule;
  const char* compressor = "topk:0.25";
  double rounding = 0;  // fp16 rounds what is no whole number of kUnit
  bool drains = true;   // or a lossy coding always leaves something
  std::uint64_t max_part = Options::kMaxPart;
};
class TooLargeAnywhere : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(GatherTooLarge, TooLargeAnywhere,
                         testing::Values(Case{"gather"}, Case{"gather", "int8", 400, false},
                                         Case{"gather", "topk:0.25", 0, true, 300}));
INSTANTIATE_TEST_SUITE_P(
    TooLarge, TooLargeAnywhere,
    testing::Values(Case{"doubling"}, Case{"balanced"}, Case{"shared", "topk:0.25", 400},
                    Case{"balanced", "int8", 400, false}, Case{"shared", "fp16", 400, false},
                    Case{"doubling", "topk:0.25,int8", 400, false},
                    Case{"balanced", "threshold:100"}, Case{"balanced", "topk:1"},
                    Case{"gather", "randomk:0.5"}, Case{"balanced", "topk:0.25", 0, true, 300},
                    Case{"two_level:gather"}, Case{"two_level:doubling"},
                    Case{"two_level:balanced"}, Case{"two_level:shared"},
                    Case{"two_level:gather", "int8", 400, false}));

/// A number of fp16 about 40000: a whole number of kUnit.
float about_40000(int rank, std::size_t i) {
  return kUnit * static_cast<float>(1200 + 10 * rank + static_cast<int>(i % 50));
}

// Sums of one or several parts and of an exempt parameter pass 65504; another one is of float32.
TEST_P(TooLargeAnywhere, SumsAreDeliveredOverTime) {
  const Case c = GetParam();
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      const int size = transports[0]->size(), rank = transports[0]->rank();
      Reducer reducer(on_nodes(transports[0], c.schedule), {.compressor = c.compressor,
                                                            .schedule = c.schedule,
                                                            .op = ReduceOp::sum,
                                                            .min_bytes = 0,
                                                            .max_part = c.max_part});
      Reducer exact(transports[1], {.compressor = "none", .op = ReduceOp::sum});
      Parameter matrix(0, 700), bias(1, 90, 1);
      std::vector<float> floats(100);
      bool clipped = false;
      std::uint64_t calls_clipped = 0;
      constexpr int kSteps = 2;
      for (int step = 0; step < kSteps + 12 + 12 * size; ++step) {
        for (Parameter* const parameter : {&matrix, &bias}) {
          if (step >= kSteps) {
            parameter->give_nothing();
            continue;
          }
          parameter->give([&](std::size_t i) { return about_40000(rank, i); },
                          [&](std::size_t i) {
                            double sum = 0;
                            for (int r = 0; r < size; ++r) {
                              sum += static_cast<double>(about_40000(r, i));
                            }
                            return sum;
                          });
        }
        std::ranges::fill(floats, step < kSteps ? 1e6F : 0);
        const Segment segments[] = {
            matrix.segment(), {.elements = floats, .id = 2}, bias.segment()};
        reducer.all_reduce(segments);
        EXPECT_EQ(reducer.last().poisoned, 0U);
        calls_clipped += reducer.last().clipped;
        EXPECT_EQ(matrix.apply(1), 0U);
        EXPECT_EQ(bias.apply(1), 0U);
        if (step < kSteps && size > 1) {
          EXPECT_EQ(bias.result(), std::vector<float>(90, kLargest));
          EXPECT_EQ(reducer.last().clipped, 1U);
        }
        const auto result = matrix.result();
        clipped = clipped || std::ranges::find(result, kLargest) != result.end();
        if (step != 1 && step != 6) continue;
        EXPECT_LE(matrix.lost(reducer, exact), c.rounding) << "step " << step;
        EXPECT_EQ(bias.lost(reducer, exact), 0) << "step " << step;
      }
      EXPECT_TRUE(clipped || size == 1);
      EXPECT_LE(matrix.lost(reducer, exact), c.rounding);
      EXPECT_EQ(bias.lost(reducer, exact), 0);
      EXPECT_TRUE(!c.drains || !matrix.waits(reducer, exact));
      EXPECT_FALSE(bias.waits(reducer, exact));
      EXPECT_TRUE(!c.drains || reducer.last().clipped == 0);
      EXPECT_TRUE(size > 1 || calls_clipped == 0);
    });
  }
}

// The rest is put nowhere before the whole bucket holds: other parts may be poisoned, or a step
// discarded. An element that is not finite poisons as ever.
TEST(TooLarge, RestsOfACallThatIsUndoneAreNotKept) {
  for (const char* schedule : {"gather", "balanced", "two_level:gather"}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0.0F}) {
      for (const int ranks : rank_counts()) {
        if (ranks == 1) continue;  // sends nothing, and keeps nothing
        run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
          const bool discards = bad == 0;
          Reducer reducer(on_nodes(transport, schedule), {.compressor = "topk:0.1",
                                                          .schedule = schedule,
                                                          .op = ReduceOp::sum,
                                                          .min_bytes = 0,
                                                          .max_part = 320});
          const auto all = [&](std::vector<float> values) {
            std::vector<std::uint16_t> halves(values.size());
            kernels::narrow({}, ElementType::fp16, values, halves);
            reducer.all_reduce({halves.data(), halves.size(), ElementType::fp16}, 0);
            kernels::widen({}, ElementType::fp16, halves, values);
            return values;
          };
          std::vector<float> given(1000, 40'000);
          (void)all(given);
          const std::vector<float> before = reducer.residual(0);
          if (discards) reducer.begin_step();
          if (!discards && transport->rank() == 0) given[900] = bad;
          for (const float x : all(given)) EXPECT_EQ(std::isfinite(x), discards);
          EXPECT_EQ(reducer.last().poisoned, discards ? 0U : 1U);
          EXPECT_EQ(reducer.last().clipped, discards ? 1U : 0U);
          if (discards) {
            reducer.discard_step();
            EXPECT_EQ(reducer.residual(0), before);
            return;
          }
          const std::vector<float> after = reducer.residual(0);
          EXPECT_EQ(after.size(), given.size());
          for (std::size_t i = 0; i < after.size() && i < given.size(); ++i) {
            // In two levels a rank's residual is of its node's sums until a call is put back.
            const float acc = given[i] + before[i];
            EXPECT_EQ(after[i], std::isfinite(acc) ? acc : before[i]) << i;
          }
        });
      }
    }
  }
}

// The largest bf16 is just below that of float32, where sums become infinite in all types.
TEST(TooLarge, SumsOfBf16Too) {
  const float largest = 0x1.fep127F, given[] = {0x1p127F, 0x1.fep126F};
  for (const char* schedule : {"gather", "doubling", "balanced", "shared", "two_level:gather"}) {
    for (const int ranks : rank_counts()) {
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
        const int size = transport->size(), rank = transport->rank();
        if (size == 1) return;
        Reducer reducer(
            on_nodes(transport, schedule),
            {.compressor = "topk:0.1", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0});
        double applied = 0;
        std::uint64_t clipped = 0;
        for (int step = 0; step < 4; ++step) {
          std::vector<float> values(200);
          if (step == 0 && rank < 2) values[70] = given[rank];
          std::vector<std::uint16_t> halves(values.size());
          kernels::narrow({}, ElementType::bf16, values, halves);
          reducer.all_reduce({halves.data(), halves.size(), ElementType::bf16}, 0);
          kernels::widen({}, ElementType::bf16, halves, values);
          EXPECT_EQ(reducer.last().poisoned, 0U);
          clipped += reducer.last().clipped;
          EXPECT_LE(std::abs(values[70]), largest);
          applied += static_cast<double>(values[70]);
        }
        EXPECT_EQ(clipped, 1U) << schedule;
        EXPECT_EQ(applied, 0x1.ffp127) << schedule << ", " << size << " ranks";
        for (const float left : reducer.residual(0)) EXPECT_EQ(left, 0);
      });
    }
  }
}

/// A call of fp16 elements that are all `value`.
std::vector<float> reduce(AllReducer& reducer, float value) {
  std::vector<float> values(300, value);
  std::vector<std::uint16_t> halves(values.size());
  kernels::narrow({}, ElementType::fp16, values, halves);
  reducer.all_reduce({halves.data(), halves.size(), ElementType::fp16}, 0);
  kernels::widen({}, ElementType::fp16, halves, values);
  return values;
}

// What compressed calls left travels with the first dense call, and may be too large for it. Where
// nothing waits a dense sum is that of MPI: infinite.
TEST(TooLarge, ADenseCallOfWhatWaitsToo) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      const int size = transports[0]->size();
      if (size == 1) return;
      std::vector<std::byte> state;
      double applied = 0;
      {
        AllReducer compressed(
            transports[0],
            {.compressor = "topk:0.01", .schedule = "gather", .op = ReduceOp::sum, .min_bytes = 0});
        for (int step = 0; step < 2; ++step) {
          applied += static_cast<double>(reduce(compressed, 32'000)[299]);
        }
        state = compressed.save();
      }
      AllReducer dense(
          transports[1],
          {.compressor = "topk:0.01", .schedule = "dense", .op = ReduceOp::sum, .min_bytes = 0});
      dense.load(state);
      EXPECT_EQ(applied, 0);
      for (double left = 64'000.0 * size; left > 0; left -= 65504) {
        EXPECT_EQ(static_cast<double>(reduce(dense, 0)[299]), std::min(left, 65504.0));
        EXPECT_EQ(dense.last().clipped, left > 65504 ? 1U : 0U);
      }
      const std::uint64_t clipped = dense.totals().clipped;
      EXPECT_GE(clipped, 1U);
      EXPECT_EQ(dense.bucket_stats().front().totals.clipped, clipped);
      EXPECT_EQ(reduce(dense, 0)[299], 0);
      const auto fresh = reduce(dense, 60'000);
      EXPECT_TRUE(std::ranges::all_of(fresh, [](float x) { return std::isinf(x); }));
      EXPECT_EQ(dense.last().clipped, 0U);
    });
  }
}

// Of a state that two ranks left, two of four begin with nothing, and deliver the same.
TEST(TooLarge, RanksThatHadNothingAgree) {
  if (rank_counts().size() == 1) GTEST_SKIP() << "a job has one number of ranks";
  std::vector<std::vector<std::byte>> states(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AllReducer compressed(
        transport,
        {.compressor = "topk:0.01", .schedule = "gather", .op = ReduceOp::sum, .min_bytes = 0});
    for (int step = 0; step < 2; ++step) (void)reduce(compressed, 32'000);
    states[static_cast<std::size_t>(transport->rank())] = compressed.save();
  });
  run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
    AllReducer dense(
        transport,
        {.compressor = "topk:0.01", .schedule = "dense", .op = ReduceOp::sum, .min_bytes = 0});
    const std::span<const std::byte> all[] = {states[0], states[1]};
    dense.load(all);
    EXPECT_EQ(reduce(dense, 0)[299], kLargest);
    EXPECT_EQ(reduce(dense, 0)[299], 4 * 32'000 - kLargest);
    EXPECT_EQ(reduce(dense, 0)[299], 0);
  });
}

// Calls in flight, of which several end together.
TEST(TooLarge, OfCallsInFlightToo) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const int size = transport->size();
      AllReducer reducer(
          transport,
          {.compressor = "topk:0.5", .schedule = "gather", .op = ReduceOp::sum, .min_bytes = 0});
      constexpr std::uint64_t kBuckets = 3;
      double applied = 0;
      for (int step = 0; step < 3 + 4 * size; ++step) {
        std::vector<std::vector<std::uint16_t>> buckets(kBuckets);
        std::vector<Work> works;
        for (std::uint64_t id = 0; id < kBuckets; ++id) {
          const std::vector<float> values(100, step < 3 ? 48'000.0F : 0.0F);
          buckets[id].resize(values.size());
          kernels::narrow({}, ElementType::fp16, values, buckets[id]);
          works.push_back(reducer.all_reduce_async(
              {buckets[id].data(), buckets[id].size(), ElementType::fp16}, id));
        }
        for (Work& work : works) work.wait();
        for (const auto& halves : buckets) {
          std::vector<float> values(halves.size());
          kernels::widen({}, ElementType::fp16, halves, values);
          for (const float x : values) applied += static_cast<double>(x);
        }
      }
      EXPECT_EQ(applied, 3.0 * 48'000 * size * 100 * kBuckets);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
