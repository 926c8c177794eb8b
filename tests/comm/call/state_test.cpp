// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// AllReducer::save and load: the same bits go on, and mass is conserved among other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/allreducer.hpp>

#include "comm/state/saved_state.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

using Bytes = std::vector<std::byte>;

const std::vector<Parameter> kParameters = {{1, 5001}, {2, 300, 1}, {3, 0}, {4, 1}, {9, 2000}};

Options options_of(const std::string& compressor, const std::string& schedule) {
  return {.compressor = compressor,
          .schedule = schedule,
          .links = "inter=50us,1Gbit/s+intra=1us,10GB/s+pass=10GB/s",
          .trial_calls = 0,
          .min_bytes = 0,
          .deadline = 60};
}

/// The results of the calls of steps [begin, end), and what is held at the end, one after another.
std::vector<float> run_steps(AllReducer& reducer, int begin, int end) {
  std::vector<float> all;
  for (int step = begin; step < end; ++step) {
    std::vector<std::vector<float>> gradients;
    std::vector<Segment> bucket;
    for (const Parameter& parameter : kParameters) {
      gradients.push_back(make_gradient(Kind::normal, parameter.count, reducer.transport().rank(),
                                        step, parameter.id));
      bucket.push_back(
          {.elements = gradients.back(), .id = parameter.id, .dimensions = parameter.dimensions});
    }
    reducer.all_reduce(bucket);
    for (const auto& result : gradients) all.insert(all.end(), result.begin(), result.end());
  }
  for (const Parameter& parameter : kParameters) {
    const auto held = reducer.residual(parameter.id);
    all.insert(all.end(), held.begin(), held.end());
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Runs `body` on so many threads, also under mpirun.
void on_threads(int ranks, const RankBody& body) {
  std::vector<std::thread> threads;
  for (auto& transport : local_transports(ranks)) {
    threads.emplace_back([&body, mine = std::shared_ptr(std::move(transport))] { body(mine); });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Case {
  const char* compressor;
  const char* schedule;
  const char* precondition = "none";
};

class StateOf : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Ways, StateOf,
    testing::Values(Case{"topk:0.02", "gather"}, Case{"topk:0.02,int8:stochastic", "balanced"},
                    Case{"topk:0.02", "doubling"}, Case{"topk:0.02", "shared"},
                    Case{"randomk:0.02", "gather"}, Case{"int4:stochastic", "balanced"},
                    Case{"threshold:2", "gather"}, Case{"none", "dense"},
                    Case{"topk:0.02", "two_level:gather"}, Case{"topk:0.02", "two_level:shared"},
                    Case{"topk:0.02,int8", "two_level:balanced"},
                    Case{"topk:0.02", "gather", "second_moment:0.9"},
                    Case{"none", "dense", "second_moment:0.9"}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

TEST_P(StateOf, ContinuesWithTheSameBits) {
  const auto& [compressor, schedule, precondition] = GetParam();
  Options options = options_of(compressor, schedule);
  options.precondition = precondition;
  run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
    constexpr int kSteps = 5;
    std::vector<float> expected;
    Bytes saved;
    {
      AllReducer reducer(transport, options);
      run_steps(reducer, 0, kSteps);
      saved = reducer.save();
      expected = run_steps(reducer, kSteps, 2 * kSteps);
    }
    AllReducer other(transport, options);
    other.load(saved);
    EXPECT_EQ(other.save(), saved);  // nothing is lost where no call comes between
    EXPECT_TRUE(same_bits(run_steps(other, kSteps, 2 * kSteps), expected));
  });
}

/// In two levels few ranks take a parameter's turn, and all count it: one level picks by that.
TEST(State, TurnsOfTwoLevelsCarryOverToOne) {
  constexpr const char* kTwoLevels = "two_level:shared";
  run_worlds(kTwoLevels, [&](const std::shared_ptr<Transport>& transport) {
    Bytes saved;
    {
      AllReducer reducer(transport, options_of("topk:0.02", kTwoLevels));
      run_steps(reducer, 0, 3);
      saved = reducer.save();
    }
    AllReducer other(transport, options_of("topk:0.02", "shared"));
    other.load(saved);
    EXPECT_NO_THROW(run_steps(other, 3, 5));
  });
}

/// The sum over ranks of everything held, in double, and each rank's state.
struct Job {
  double mass = 0;
  std::vector<Bytes> states;
};

/// `ranks` ranks load `from`, if any, and make some calls with gradients of whole numbers.
Job run_job(int ranks, const std::vector<Bytes>& from, ReduceOp op, double& applied) {
  Options options = options_of("topk:0.01", "gather");
  options.op = op;
  Job job;
  job.states.resize(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  on_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
    AllReducer reducer(transport, options);
    std::vector<std::span<const std::byte>> all(from.begin(), from.end());
    if (!all.empty()) reducer.load(all);
    double sum = 0;
    for (int step = 0; step < 3; ++step) {
      std::vector<float> gradient(1000);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(step)) % 13);
      }
      reducer.all_reduce(gradient, 1);
      for (const float element : gradient) sum += static_cast<double>(element);
    }
    double held = 0;
    for (const float element : reducer.residual(1)) held += static_cast<double>(element);
    const std::lock_guard lock(mutex);
    if (transport->rank() == 0) applied += sum;
    job.mass += op == ReduceOp::average ? held / ranks : held;
    job.states[static_cast<std::size_t>(transport->rank())] = reducer.save();
  });
  return job;
}

double gradient_mass() {
  double mass = 0;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 1000; ++i) mass += (i * 7 + step) % 13;
  }
  return mass;
}

/// What was applied and what is held is what came in, among 4, then 3, then 4 ranks.
TEST(State, ConservesMassAmongOtherRanks) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average}) {
    double applied = 0, expected = 0;
    Job job;
    for (const int ranks : {4, 3, 4, 1, 2}) {
      job = run_job(ranks, job.states, op, applied);
      expected += op == ReduceOp::average ? gradient_mass() : ranks * gradient_mass();
      // Sums of whole numbers are exact; averages of 3 ranks round.
      EXPECT_NEAR(applied + job.mass, expected, op == ReduceOp::sum ? 0 : 1e-5 * expected);
    }
  }
}

TEST(State, RefusesWhatIsNotWhole) {
  double applied = 0;
  const Job two = run_job(2, {}, ReduceOp::sum, applied);
  const Job three = run_job(3, {}, ReduceOp::sum, applied);
  const Job later = run_job(2, two.states, ReduceOp::sum, applied);
  on_threads(2, [&](const std::shared_ptr<Transport>& transport) {
    AllReducer reducer(transport, options_of("topk:0.01", "gather"));
    const auto refused = [&](const std::vector<Bytes>& states, const char* why) {
      const std::vector<std::span<const std::byte>> all(states.begin(), states.end());
      EXPECT_THAT([&] { reducer.load(all); },
                  testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
    };
    const auto mine = static_cast<std::size_t>(transport->rank());
    refused({}, "no state");
    refused({two.states[1 - mine]}, "or that of rank");
    refused({three.states[0], three.states[1]}, "must be all of them");
    refused({three.states[0], three.states[0]}, "two states of rank 0");
    refused({two.states[0], three.states[1]}, "different jobs");
    refused({two.states[0], later.states[1]}, "different jobs or steps");
    Bytes damaged = two.states[mine];
    for (std::size_t at = 0; at < damaged.size(); at += 97) {
      damaged[at] ^= std::byte{1};
      refused({damaged}, "damaged");
      damaged[at] ^= std::byte{1};
    }
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, damaged.size() - 8}) {
      refused({Bytes(damaged.begin(), damaged.begin() + static_cast<std::ptrdiff_t>(bytes))},
              "damaged");
    }
    reducer.load(damaged);  // which is whole again
    std::vector<float> gradient(1000, 1.0F);
    reducer.all_reduce(gradient, 1);
    refused({damaged}, "before the first call");
    std::vector<float> other(999, 1.0F);
    EXPECT_THROW(reducer.all_reduce(other, 1), UsageError);
  });
}

/// Moments are of a rank's own gradients: those of rank r go on on rank r, and beyond the
/// old ranks on all again.
TEST(State, HandsOnMoments) {
  std::vector<Bytes> states;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    comm::SavedState state{
        .ranks = 2, .rank = rank, .calls = 5, .parameters = {{.id = 1, .count = 2}}};
    state.parameters[0].counted = 5;
    state.parameters[0].moment = {static_cast<float>(rank), 3};
    states.push_back(comm::to_bytes(state));
  }
  const std::vector<std::span<const std::byte>> all(states.begin(), states.end());
  for (int rank = 0; rank < 3; ++rank) {
    const auto parameters = comm::take_over(all, rank, 3, true).parameters;
    EXPECT_EQ(parameters[0].counted, 5U);
    EXPECT_EQ(parameters[0].moment, (std::vector<float>{static_cast<float>(rank % 2), 3}));
  }
}

/// Where ranks have left, one that stays goes on alone, under any number: averages over fewer ranks
/// apply what it held once, as before.
TEST(State, GoesOnAlone) {
  comm::SavedState state{
      .ranks = 4, .rank = 3, .calls = 5, .parameters = {{.id = 1, .count = 2, .piece_length = 2}}};
  state.parameters[0].pieces = {{.turn = 7, .dirty = 1, .owned_by_plan = 2}};
  state.parameters[0].residual = {8, -4};
  state.parameters[0].counted = 5;
  state.parameters[0].moment = {1, 3};
  const Bytes bytes = comm::to_bytes(state);
  const std::vector<std::span<const std::byte>> four = {{}, {}, {}, bytes};
  for (const bool averages : {false, true}) {
    const comm::SavedState moved = comm::take_over(four, 1, 2, averages);
    EXPECT_EQ(moved.ranks, 2U);
    EXPECT_EQ(moved.rank, 1U);
    EXPECT_EQ(moved.calls, 5U);
    const comm::SavedParameter& parameter = moved.parameters.at(0);
    EXPECT_EQ(parameter.residual,
              averages ? (std::vector<float>{4, -2}) : (std::vector<float>{8, -4}));
    EXPECT_EQ(parameter.counted, 5U);
    EXPECT_EQ(parameter.moment, (std::vector<float>{1, 3}));
    EXPECT_EQ(parameter.pieces.at(0).turn, 7U);
    EXPECT_EQ(parameter.pieces.at(0).dirty, 1U);
    EXPECT_EQ(parameter.pieces.at(0).owned_by_plan, 0U);
  }
  const std::vector<std::span<const std::byte>> three = {{}, bytes, {}};
  EXPECT_THROW(comm::take_over(three, 1, 2, true), UsageError);
  const std::vector<std::span<const std::byte>> two_given = {bytes, bytes, {}, {}};
  EXPECT_THROW(comm::take_over(two_given, 1, 2, true), UsageError);
  const std::vector<std::span<const std::byte>> none_given = {{}, {}, {}, {}};
  EXPECT_THROW(comm::take_over(none_given, 1, 2, true), UsageError);
}

/// A count or a number of pieces that only a digest of its own makes good allocates nothing.
TEST(State, TrustsNoNumber) {
  comm::SavedState state{.parameters = {{.id = 1, .count = 8, .piece_length = 8}}};
  state.parameters[0].pieces.resize(1);
  state.parameters[0].residual.resize(8);
  EXPECT_EQ(comm::from_bytes(comm::to_bytes(state)).parameters[0].count, 8U);
  state.parameters[0].count = std::uint64_t{1} << 60;
  EXPECT_THROW(comm::from_bytes(comm::to_bytes(state)), UsageError);
  state.parameters[0].piece_length = 0;
  EXPECT_THROW(comm::from_bytes(comm::to_bytes(state)), UsageError);
  state.parameters[0] = {.id = 1, .count = 8, .moment = std::vector<float>(7)};
  EXPECT_THROW(comm::from_bytes(comm::to_bytes(state)), UsageError);
  state.parameters[0].moment.push_back(0);
  EXPECT_NO_THROW(comm::from_bytes(comm::to_bytes(state)));
  state.ranks = 0;
  EXPECT_THROW(comm::from_bytes(comm::to_bytes(state)), UsageError);
}

}  // namespace
}  // namespace winnow::tests
