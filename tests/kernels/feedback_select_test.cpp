// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/elementwise.hpp"
#include "lab/reference/place.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/select_cases.hpp"
#include "tests/kernels/float_modes.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {
namespace {

using kernels::FeedbackSelectJob;
using kernels::GradientAfter;
using kernels::SelectBound;
using kernels::SelectResult;

/// The memory of a step in a place.
struct Placed {
  Placed(const Exec& exec, const SelectStep& step, const SelectBound& bound)
      : host(step),
        gradient(exec, step.gradient),
        halves(exec, halves_of(step.type, step.gradient)),
        residual(exec, step.residual),
        moment(exec, step.moment),
        value(exec, step.k),
        own_value(exec, step.own ? step.own->room : 0),
        index(exec, step.k),
        own_index(exec, step.own ? step.own->room : 0),
        state(exec, std::vector{bound}),
        result(exec, 1) {}

  FeedbackSelectJob job() {
    return {.spans = {gradient_of(host.type, gradient.span(), halves.span()), residual.span(),
                      host.decay, host.own_units(own_index.span(), own_value.span()),
                      host.precondition_by(moment.span())},
            .index = index.span(),
            .value = value.span(),
            .state = state.data(),
            .result = result.data(),
            .side = host.side};
  }
  SelectOutcome download(SelectBound& bound) {
    SelectOutcome out(host);
    out.gradient = gradient.download();
    out.halves = halves.download();
    out.residual = residual.download();
    out.moment = moment.download();
    out.index = index.download();
    out.value = value.download();
    out.own_index = own_index.download();
    out.own_value = own_value.download();
    out.result = result.download()[0];
    bound = state.download()[0];
    return out;
  }

  const SelectStep& host;
  OnPlace<float> gradient;
  OnPlace<std::uint16_t> halves;
  OnPlace<float> residual, moment, value, own_value;
  OnPlace<std::uint32_t> index, own_index;
  OnPlace<SelectBound> state;
  OnPlace<SelectResult> result;
};

using Change = std::function<void(FeedbackSelectJob& job)>;

/// Runs a step with a carried bound, and replaces it by the bound that the step learns.
SelectOutcome run(const Exec& exec, const SelectStep& step, SelectBound& bound,
                  const Change& change = {}) {
  Placed placed(exec, step, bound);
  FeedbackSelectJob job = placed.job();
  if (change) change(job);
  kernels::feedback_select(exec, {&job, 1});
  return placed.download(bound);
}

/// The bodies that learn must have learnt `right`.
void expect_learnt(const Exec& exec, const SelectBound& got, const SelectBound& right) {
  if (exec.place == lab::kReference) return;
  EXPECT_EQ(got.bound, right.bound);
  EXPECT_EQ(got.margin, right.margin);
  EXPECT_EQ(got.k, right.k);
}

/// Learns by the cpu body, with a carried bound.
void learn(const SelectStep& step, SelectBound& bound) {
  Workspace workspace;
  run({.workspace = &workspace}, step, bound);
}

/// If the list of own elements lacks room, its content has no meaning.
void expect_as_good(SelectOutcome got, SelectOutcome expected) {
  if (expected.result.listed > expected.own_index.size()) {
    for (SelectOutcome* const outcome : {&got, &expected}) {
      outcome->own_index.clear();
      outcome->own_value.clear();
    }
  }
  expect_equal(got, expected);
}

/// Checks the laws, from the inputs alone. They hold for the reference body, too.
void expect_laws(const SelectStep& step, const SelectOutcome& out) {
  const std::size_t count = step.gradient.size();
  std::vector<float> acc(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float kept = step.decay * step.residual[i];
    acc[i] = step.gradient[i] + kept;
  }
  const auto finite = [&](std::size_t i) { return std::isfinite(acc[i]); };
  const auto counts = [&](std::size_t i) {
    if (step.side == kernels::Side::both) return finite(i);
    return finite(i) && (step.side == kernels::Side::positive ? acc[i] >= 0 : acc[i] <= 0);
  };

  EXPECT_TRUE(std::all_of(out.gradient.begin(), out.gradient.end(),
                          [](float x) { return std::bit_cast<std::uint32_t>(x) == 0; }));
  ASSERT_EQ(out.index.size(), step.k);
  EXPECT_TRUE(std::adjacent_find(out.index.begin(), out.index.end(), std::greater_equal<>()) ==
              out.index.end())
      << "indices must ascend without repeats";
  ASSERT_LT(out.index.back(), count);

  std::vector<float> decoded(count);
  std::vector<bool> selected(count);
  for (std::size_t j = 0; j < step.k; ++j) {
    decoded[out.index[j]] = out.value[j];
    selected[out.index[j]] = true;
  }
  std::size_t not_conserved = 0, finite_count = 0, counted = 0, wrongly_selected = 0;
  // Smallest selected and largest unselected by (|acc|, lowest index wins).
  for (std::size_t i = 0; i < count; ++i) {
    if (finite(i)) {
      ++finite_count;
      counted += counts(i) ? 1 : 0;
      not_conserved += decoded[i] + out.residual[i] != acc[i];
      const bool moved = selected[i] && counts(i);
      not_conserved += moved ? std::bit_cast<std::uint32_t>(out.residual[i]) != 0 : decoded[i] != 0;
    } else {
      not_conserved += decoded[i] != 0 || std::bit_cast<std::uint32_t>(out.residual[i]) !=
                                              std::bit_cast<std::uint32_t>(step.residual[i]);
    }
  }
  EXPECT_EQ(not_conserved, 0u);
  EXPECT_EQ(out.result.finite, finite_count == count);

  if (counted < step.k) {
    std::size_t filling = step.k - counted;
    for (std::size_t i = 0; i < count; ++i) {
      const bool expected = counts(i) || (filling > 0 && filling-- > 0);
      wrongly_selected += selected[i] != expected;
    }
  } else {
    float smallest = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < count; ++i) {
      if (!selected[i]) continue;
      wrongly_selected += !counts(i);
      smallest = std::min(smallest, std::fabs(acc[i]));
    }
    bool tie_left_out = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (!counts(i) || std::fabs(acc[i]) < smallest) continue;
      if (std::fabs(acc[i]) > smallest) {
        wrongly_selected += !selected[i];
      } else {
        wrongly_selected += selected[i] && tie_left_out;
        tie_left_out |= !selected[i];
      }
    }
  }
  EXPECT_EQ(wrongly_selected, 0u);
}

/// Checks the contract for own positions, from the inputs alone.
void expect_own_left_out(const SelectStep& step, const SelectOutcome& out) {
  const OwnCase& own = *step.own;
  std::size_t wrong = 0, listed = 0;
  for (std::size_t i = 0; i < step.gradient.size(); ++i) {
    const std::uint64_t position = own.base + i;
    if (own.partition.owner_of_unit(position / kernels::Partition::kUnit) != own.self) continue;
    const float carried = step.decay * step.residual[i];
    const float acc = step.gradient[i] + carried;
    const float kept = std::isfinite(acc) ? acc : step.residual[i];
    wrong += std::bit_cast<std::uint32_t>(out.residual[i]) != std::bit_cast<std::uint32_t>(kept);
    wrong += out.gradient[i] != 0;
    wrong += std::ranges::binary_search(out.index, static_cast<std::uint32_t>(i));
    if (!std::isfinite(acc) || std::fabs(acc) < own.bound) continue;
    if (listed < out.own_index.size()) {
      wrong += out.own_index[listed] != static_cast<std::uint32_t>(own.partition.local(position));
      wrong += out.own_value[listed] != acc;
    }
    ++listed;
  }
  EXPECT_EQ(out.result.listed, listed);
  EXPECT_EQ(wrong, 0u);
}

std::vector<std::size_t> ks_of(std::size_t count) {
  if (count == 0) return {0};
  std::vector<std::size_t> ks = {0, 1, (count + 99) / 100, (count + 9) / 10, count};
  ks.erase(std::unique(ks.begin(), ks.end()), ks.end());
  return ks;
}

class FeedbackSelect : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, FeedbackSelect, testing::ValuesIn(kInputs), [](const auto& test) {
  std::ostringstream name;
  name << test.param;
  return name.str();
});

/// For each k, a first step is as specified and obeys the laws.
void expect_first_steps(Input input, std::size_t count, std::span<const std::size_t> ks) {
  for (const std::size_t k : ks) {
    SCOPED_TRACE(testing::Message() << count << " elements, k " << k);
    const SelectCase first(first_step(input, count, k));
    if (k > 0) expect_laws(first.step, first.expected);
    SelectBound learnt;
    learn(first.step, learnt);
    for_each_body([&](const Exec& exec) {
      SelectBound bound;
      expect_equal(run(exec, first.step, bound), first.expected);
      expect_learnt(exec, bound, learnt);
    });
  }
}

TEST_P(FeedbackSelect, FirstStepEqualsReference) {
  expect_first_steps(GetParam(), 0, ks_of(0));
  for (const std::size_t count : kSizes) {
    if (many(count) == count) expect_first_steps(GetParam(), count, ks_of(count));
  }
}

TEST_P(FeedbackSelect, FirstStepOfManyEqualsReference) {
  const std::size_t count = many(kLargeSize);
  const std::size_t ks[] = {1, (count + 99) / 100};
  expect_first_steps(GetParam(), count, ks);
}

void expect_carried_steps(Input input, std::size_t count) {
  const std::vector<SelectCase> steps = carried_steps(input, count);
  SelectBound learnt;
  for (const SelectCase& step : steps) learn(step.step, learnt);
  for_each_body([&](const Exec& exec) {
    SelectBound bound;
    expect_steps(steps, [&](const SelectStep& step, SelectBound& carried) {
      const SelectOutcome out = run(exec, step, carried);
      EXPECT_LE(out.result.passes, 2u);
      bound = carried;
      return out;
    });
    expect_learnt(exec, bound, learnt);
  });
}

TEST_P(FeedbackSelect, CarriedBoundEqualsReference) {
  for (const std::size_t count : {33U, 4097U, 13'001U}) expect_carried_steps(GetParam(), count);
}

TEST(FeedbackSelectPasses, CarriedBoundOfManyEqualsReference) {
  for (const Input input : {Input::normal, Input::all_equal, Input::ascending, Input::not_finite}) {
    SCOPED_TRACE(testing::Message() << input);
    expect_carried_steps(input, many(300'001));
  }
}

// Elements of the other side keep acc, whatever the bound; where fewer than k are on the side,
// others fill the message up.
TEST_P(FeedbackSelect, OneSideEqualsReference) {
  for (const kernels::Side side : kSides) {
    for (const std::size_t count : {1U, 33U, 1000U, 4097U, 13'001U}) {
      for (const std::size_t k : ks_of(count)) {
        SCOPED_TRACE(testing::Message() << count << " elements, k " << k);
        const SelectCase first(on_side(side, first_step(GetParam(), count, k)));
        if (k > 0) expect_laws(first.step, first.expected);
        for (const float carried : {0.0F, 1.0F, 1e9F}) {
          for_each_body([&](const Exec& exec) {
            SelectBound bound{.bound = carried,
                              .k = carried > 0 ? static_cast<std::uint32_t>(k) : 0};
            expect_equal(run(exec, first.step, bound), first.expected);
          });
        }
      }
    }
    const std::vector<SelectCase> steps = carried_steps(GetParam(), 13'001, side);
    for_each_body([&](const Exec& exec) {
      expect_steps(steps, [&](const SelectStep& step, SelectBound& carried) {
        return run(exec, step, carried);
      });
    });
  }
}

TEST_P(FeedbackSelect, OwnUnitsDoNotCompeteAndKeepAcc) {
  for (const std::size_t count : {0U, 1U, 64U, 65U, 1000U, 4097U}) {
    for (const std::vector<SelectCase>& steps : own_steps(GetParam(), count)) {
      for (const SelectCase& step : steps) expect_own_left_out(step.step, step.expected);
      for_each_body([&](const Exec& exec) {
        SelectBound bound;
        for (const SelectCase& step : steps) {
          SCOPED_TRACE(testing::Message() << count << " elements from " << step.step.own->base);
          expect_as_good(run(exec, step.step, bound), step.expected);
        }
      });
    }
  }
}

TEST_P(FeedbackSelect, ResultsDoNotDependOnTheCallersFloatMode) {
  const SelectCase step(
      {make_input(GetParam(), 20'001, 7), make_input(Input::denormal, 20'001, 8), 0.5F, 201});
  for_each_body([&](const Exec& exec) {
    if (exec.place == Place::cuda) return;  // the device's threads have their own mode
    SelectBound bound;
    const SelectOutcome got = [&] {
      const FlushToZero flush;
      const auto mode = FlushToZero::read();
      SelectOutcome out = run(exec, step.step, bound);
      EXPECT_EQ(FlushToZero::read(), mode);
      return out;
    }();
    expect_equal(got, step.expected);
  });
}

TEST(FeedbackSelectPasses, OwnUnitsOfManyEqualReference) {
  for (const Input input : {Input::normal, Input::not_finite}) {
    for (const std::vector<SelectCase>& steps : own_steps(input, many(300'001))) {
      for_each_body([&](const Exec& exec) {
        SelectBound bound;
        for (const SelectCase& step : steps) {
          expect_as_good(run(exec, step.step, bound), step.expected);
        }
      });
    }
  }
}

TEST(FeedbackSelectPasses, ABoundTooHighRepeatsThePassAndIsUnlearnt) {
  const std::size_t count = many(50'000);
  for (const Input input : {Input::normal, Input::not_finite}) {
    const SelectCase step(
        {make_input(input, count, 21), make_input(Input::normal, count, 22), 1, count / 100});
    for_each_body([&](const Exec& exec) {
      SelectBound bound{
          .bound = 3.9F, .margin = 0.03F, .k = static_cast<std::uint32_t>(step.step.k)};
      const SelectOutcome missed = run(exec, step.step, bound);
      expect_equal(missed, step.expected);
      const SelectOutcome again = run(exec, step.step, bound);
      expect_equal(again, step.expected);
      EXPECT_GE(again.result.candidates, step.step.k);
      EXPECT_EQ(again.result.passes, 1u);
      if (exec.place == lab::kReference) return;
      EXPECT_EQ(missed.result.passes, 2u);
      EXPECT_LT(missed.result.candidates, step.step.k);
      EXPECT_GT(missed.result.candidates, 0u);
    });
  }
}

TEST(FeedbackSelectPasses, AMissedBoundDoesNotMoveOwnUnitsTwice) {
  const std::size_t count = many(50'000);
  const SelectCase step(own_step(Input::normal, count, 2, 64));
  for_each_body([&](const Exec& exec) {
    SelectBound bound{.bound = 4.5F, .margin = 0.03F, .k = static_cast<std::uint32_t>(step.step.k)};
    expect_as_good(run(exec, step.step, bound), step.expected);
  });
}

// What a pass of its own would make of the gradient. A bound that is too high repeats the pass, but
// no step of a moment.
TEST(FeedbackSelectPasses, APreconditionIsOfThePass) {
  const std::size_t large = many(300'001);
  for (const std::size_t count : {std::size_t{1}, std::size_t{999}, large}) {
    for (const Input input : {Input::normal, Input::not_finite, Input::mostly_zero}) {
      if (count == large && input != Input::normal) continue;
      for (const SelectStep& step : preconditioned_steps(input, count)) {
        SelectStep made = step;
        const kernels::Precondition by = made.precondition_by(made.moment);
        kernels::precondition({.place = lab::kReference}, made.gradient, made.residual, by);
        made.precondition = {};
        const SelectOutcome expected = select_by_reference(made);
        for (const float carried : {0.0F, 0.01F, 1e9F}) {
          SCOPED_TRACE(testing::Message()
                       << count << " elements, " << input << ", kind " << static_cast<int>(by.kind)
                       << (by.masked ? " masked" : "") << ", bound " << carried);
          for_each_body([&](const Exec& exec) {
            SelectBound bound{.bound = carried,
                              .k = carried > 0 ? static_cast<std::uint32_t>(step.k) : 0};
            expect_as_good(run(exec, step, bound), expected);
          });
        }
      }
    }
  }
}

/// Bounds that are sampled, carried, too high and too low; own units, sides and preconditions.
TEST(FeedbackSelectHalves, EqualReference) {
  for (const ElementType type : kHalves) {
    for (const Input input : {Input::normal, Input::not_finite, Input::denormal, Input::cauchy}) {
      std::vector<SelectStep> steps;
      for (const std::size_t count : {1U, 63U, 64U, 4097U, 13'001U}) {
        steps.push_back(as_halves(type, first_step(input, count, (count + 99) / 100)));
        steps.push_back(on_side(kernels::Side::negative, steps.back()));
      }
      steps.push_back(as_halves(type, first_step(input, many(300'001), 3000)));
      for (SelectStep& step : preconditioned_steps(input, 9001)) {
        steps.push_back(as_halves(type, std::move(step)));
      }
      for (const SelectStep& step : steps) {
        const SelectOutcome expected = select_by_reference(step);
        for_each_body([&](const Exec& exec) {
          SCOPED_TRACE(testing::Message() << input << ", " << step.gradient.size() << " elements");
          for (const float bound : {0.0F, 0.5F, 1e9F}) {
            SelectBound carried{.bound = bound, .margin = 0, .k = static_cast<unsigned>(step.k)};
            if (bound == 0) carried = {};
            expect_as_good(run(exec, step, carried), expected);
          }
        });
      }
    }
  }
}

TEST(FeedbackSelectPasses, MinusZeroSurvivesARepeatedPass) {
  SelectStep step{std::vector<float>(5000, -0.0F), std::vector<float>(5000, -0.0F), 1, 50};
  step.gradient[4999] = 2;
  const SelectOutcome expected = select_by_reference(step);
  for_each_body([&](const Exec& exec) {
    SelectBound bound{.bound = 1, .margin = 0, .k = 50};
    const SelectOutcome got = run(exec, step, bound);
    EXPECT_EQ(got.result.passes, exec.place == lab::kReference ? 1u : 2u);
    expect_equal(got, expected);
  });
}

TEST(FeedbackSelectPasses, SteadyStateTakesOnePassAndFewCandidates) {
  constexpr std::uint32_t kSteps = 60, kSettled = 40;
  const std::size_t count = many(100'000), k = count / 100;
  std::vector<std::vector<float>> gradients;
  for (std::uint32_t s = 0; s < kSteps; ++s) {
    gradients.push_back(make_input(Input::normal, count, 100 + s));
  }
  const auto most = static_cast<double>(k) * (1.1 + 8 / std::sqrt(static_cast<double>(k)));
  for_each_body([&](const Exec& exec) {
    if (exec.place == lab::kReference) return;
    SelectBound bound;
    std::vector<float> residual(count);
    for (std::uint32_t s = 0; s < kSteps; ++s) {
      const SelectOutcome out = run(exec, {gradients[s], residual, 1, k}, bound);
      residual = out.residual;
      if (s < kSettled) continue;
      EXPECT_EQ(out.result.passes, 1u);
      EXPECT_GE(out.result.candidates, k);
      EXPECT_LT(static_cast<double>(out.result.candidates), most);
    }
  });
}

TEST(FeedbackSelectPasses, TheSampleCountsOnlyWhatCompetes) {
  const std::size_t count = many(kLargeSize);
  if (count < kLargeSize) GTEST_SKIP() << "too few for a sample";
  SelectStep step{make_input(Input::normal, count, 5), std::vector<float>(count), 1, count / 200};
  step.own = OwnCase{.partition = kernels::Partition(2, count), .self = 1};
  for_each_body([&](const Exec& exec) {
    SelectBound bound;
    EXPECT_EQ(run(exec, step, bound).result.passes, 1u);
  });
}

// Large elements of the other side would make a bound too high.
TEST(FeedbackSelectPasses, TheSampleCountsOnlyTheSide) {
  const std::size_t count = many(kLargeSize);
  if (count < kLargeSize) GTEST_SKIP() << "too few for a sample";
  for (const kernels::Side side : kSides) {
    SelectStep step = on_side(
        side, {make_input(Input::normal, count, 5), std::vector<float>(count), 1, count / 200});
    for (float& x : step.gradient) {
      if (side == kernels::Side::positive ? x < 0 : x > 0) x *= 100;
    }
    const SelectCase expected(step);
    for_each_body([&](const Exec& exec) {
      SelectBound bound;
      const SelectOutcome out = run(exec, step, bound);
      expect_equal(out, expected.expected);
      EXPECT_EQ(out.result.passes, 1u);
      if (exec.place == lab::kReference) return;
      EXPECT_LT(out.result.candidates, 2 * step.k);
    });
  }
}

// A device has a kernel for tasks of which some are on one side.
TEST(FeedbackSelectPasses, SidesAndPreconditionsGoTogether) {
  for (const Input input : {Input::normal, Input::not_finite, Input::mostly_zero}) {
    for (SelectStep step : preconditioned_steps(input, 4999)) {
      step.own.reset();
      for (const kernels::Side side : kSides) {
        step.side = side;
        const SelectOutcome expected = select_by_reference(step);
        for (const float carried : {0.0F, 1e9F}) {
          for_each_body([&](const Exec& exec) {
            SelectBound bound{.bound = carried,
                              .k = carried > 0 ? static_cast<std::uint32_t>(step.k) : 0};
            expect_equal(run(exec, step, bound), expected);
          });
        }
      }
    }
  }
}

/// Own units may hold any values; the other units decide whether one pass is enough.
TEST(FeedbackSelectPasses, OwnUnitsNeitherFillNorMoveABound) {
  SelectStep large = own_step(Input::normal, 9000, 2, 64);
  for (std::size_t i = 0; i < large.gradient.size(); ++i) {
    const std::uint64_t unit = (64 + i) / kernels::Partition::kUnit;
    if (large.own->partition.owner_of_unit(unit) == large.own->self) large.gradient[i] = 1e6F;
  }
  const SelectCase step(large);
  for_each_body([&](const Exec& exec) {
    SelectBound bound{.bound = 2.9F, .margin = 0.03F, .k = static_cast<std::uint32_t>(large.k)};
    const SelectOutcome out = run(exec, large, bound);
    EXPECT_EQ(out.result.passes, 1u);
    EXPECT_LT(bound.bound, 10);
    expect_as_good(out, step.expected);
  });
}

TEST(FeedbackSelectOwn, SaysHowManyWhereRoomIsShort) {
  SelectStep step{std::vector<float>(20'000, 2), std::vector<float>(20'000), 1, 10};
  step.own = OwnCase{.partition = kernels::Partition(2, 20'000), .bound = 1, .room = 50};
  for_each_body([&](const Exec& exec) {
    SelectBound bound;
    EXPECT_EQ(run(exec, step, bound).result.listed, step.own->partition.local_count(0));
  });
}

TEST(FeedbackSelectOwn, ABoundInMemoryIsTheOneThatCounts) {
  for (const float own_bound : {0.0F, 0.5F, 2.0F, 1e9F}) {
    SCOPED_TRACE(own_bound);
    SelectStep step = own_step(Input::normal, 9000, 2, 64);
    step.own->bound = own_bound;
    const SelectOutcome expected = select_by_reference(step);
    EXPECT_EQ(expected.result.listed_by, own_bound);
    step.own->bound = 1;
    for_each_body([&](const Exec& exec) {
      OnPlace<float> there(exec, std::vector{own_bound});
      SelectBound bound;
      const SelectOutcome got =
          run(exec, step, bound, [&](FeedbackSelectJob& job) { job.own_bound = there.data(); });
      expect_as_good(got, expected);
      EXPECT_EQ(got.result.listed_by, own_bound);
    });
  }
}

TEST(FeedbackSelectJob, IndicesCountFromTheBase) {
  constexpr std::uint32_t kBase = 4'000'000'000;
  const SelectCase step(first_step(Input::normal, 5000, 50));
  for (const float bound_of_step : {1.0F, 1e9F}) {
    for_each_body([&](const Exec& exec) {
      SelectBound bound{.bound = bound_of_step, .margin = 0, .k = 50};
      SelectOutcome got =
          run(exec, step.step, bound, [](FeedbackSelectJob& job) { job.base = kBase; });
      for (std::uint32_t& i : got.index) i -= kBase;
      expect_equal(got, step.expected);
    });
  }
}

/// Unless the job asks for zeros, the gradient becomes zeros or stays as it is, except for marks.
TEST(FeedbackSelectJob, AnUnspecifiedGradientIsOnlyMarked) {
  const SelectCase both(first_step(Input::not_finite, 9000, 300));
  const SelectStep& given = both.step;
  const SelectOutcome& expected = both.expected;
  for (const float bound_of_step : {1.0F, 1e9F}) {
    for_each_body([&](const Exec& exec) {
      SelectBound bound{.bound = bound_of_step, .margin = 0, .k = 300};
      SelectOutcome got = run(exec, given, bound, [](FeedbackSelectJob& job) {
        job.gradient_after = GradientAfter::accumulated;
      });
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < got.gradient.size(); ++i) {
        const float carried = given.decay * given.residual[i], left = got.gradient[i];
        const bool finite = std::isfinite(given.gradient[i] + carried);
        wrong += left != 0 && !(finite ? left == given.gradient[i] : std::isnan(left));
        got.gradient[i] = 0;
      }
      EXPECT_EQ(wrong, 0u);
      expect_equal(got, expected);
    });
  }
}

TEST(FeedbackSelectJob, MisalignedSpansEqualReference) {
  const std::vector<float> gradient = make_input(Input::normal, 5003, 1);
  const SelectCase step({{gradient.begin() + 1, gradient.end()}, std::vector<float>(5002), 1, 50});
  for_each_body([&](const Exec& exec) {
    OnPlace<float> there(exec, gradient), residual(exec, 5003);
    SelectBound bound;
    const SelectOutcome got = run(exec, step.step, bound, [&](FeedbackSelectJob& job) {
      job.spans = {there.span().subspan(1), residual.span().subspan(1), 1};
    });
    EXPECT_TRUE(got.index == step.expected.index);
    EXPECT_TRUE(same_bits(got.value, step.expected.value));
    EXPECT_TRUE(
        same_bits(std::span<const float>(residual.download()).subspan(1), step.expected.residual));
  });
}

/// The scratch of a body: its own workspace, with room for what the body says that it takes.
class Reserved {
 public:
  Reserved(const Exec& exec, std::size_t bytes)
      : workspace_(kernels::memory_of(exec.place)), exec_(exec) {
    workspace_.reserve(bytes);
    allocations_ = workspace_.allocations();
    (exec.place == Place::cuda ? exec_.device_workspace : exec_.workspace) = &workspace_;
  }
  const Exec& exec() const { return exec_; }
  bool did() const { return workspace_.allocations() == allocations_; }

 private:
  Workspace workspace_;
  Exec exec_;
  std::uint64_t allocations_;
};

/// Jobs of one list leave what each leaves alone; a device takes them together, and threads of the
/// host share out the short ones.
void expect_list_equals_its_jobs(const std::vector<SelectStep>& steps) {
  for_each_body([&](const Exec& exec) {
    std::vector<SelectBound> bounds(steps.size());
    for (int call = 0; call < 2; ++call) {
      std::deque<Placed> placed;
      std::vector<FeedbackSelectJob> jobs;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        jobs.push_back(placed.emplace_back(exec, steps[i], bounds[i]).job());
      }
      const Reserved scratch(exec, kernels::feedback_select_scratch(exec, jobs));
      kernels::feedback_select(scratch.exec(), jobs);
      EXPECT_TRUE(scratch.did());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        SCOPED_TRACE(i);
        SelectBound alone = bounds[i];
        const SelectOutcome expected = run(exec, steps[i], alone);
        expect_as_good(placed[i].download(bounds[i]), expected);
        expect_learnt(exec, bounds[i], alone);
      }
    }
    kernels::feedback_select(exec, {});
  });
}

TEST(FeedbackSelectJob, AListEqualsItsJobs) {
  std::vector<SelectStep> own, sides;
  std::vector<std::size_t> counts{0, 5000, 1, 4096, 64, 9001};
  for (std::size_t i = 0; i < 20; ++i) counts.push_back(1500 + i);
  for (const std::size_t count : counts) {
    const SelectStep step = first_step(Input::not_finite, count, (count + 99) / 100);
    own.push_back(count == 9001 ? own_step(Input::normal, count, 3, 6400) : step);
    sides.push_back(on_side(kSides[sides.size() % 2], step));
  }
  sides[1].side = kernels::Side::both;
  expect_list_equals_its_jobs(own);
  expect_list_equals_its_jobs(sides);
}

TEST(FeedbackSelectJob, DoesNothingWhereItsConditionDoesNotHold) {
  const SelectStep step = first_step(Input::normal, 5000, 50);
  for_each_body([&](const Exec& exec) {
    OnPlace<std::uint32_t> word(exec, 1);
    Exec unless = exec;
    unless.condition = {.words = word.data(), .count = 1};
    SelectBound bound;
    Placed placed(exec, step, bound);
    const FeedbackSelectJob job = placed.job();
    kernels::feedback_select(unless, {&job, 1});
    const SelectOutcome got = placed.download(bound);
    EXPECT_TRUE(same_bits(got.gradient, step.gradient));
    EXPECT_TRUE(same_bits(got.residual, step.residual));
    EXPECT_EQ(got.index, std::vector<std::uint32_t>(step.k));
    EXPECT_EQ(got.result.passes, 0u);
    EXPECT_EQ(bound.k, 0u);
  });
}

TEST(FeedbackSelectScratch, IsAllThatAStepTakes) {
  for (const std::size_t count : {std::size_t{1000}, many(300'001)}) {
    for (const std::size_t k : {std::size_t{0}, count / 100, count / 2}) {
      for (const Input input : {Input::normal, Input::all_equal, Input::ascending}) {
        SelectStep step = own_step(input, count, 3, 64);
        step.k = k;
        for_each_body([&](const Exec& exec) {
          const FeedbackSelectJob sizes = job_of(count, k, step.own->room);
          const Reserved scratch(exec, kernels::feedback_select_scratch(exec, {&sizes, 1}));
          SelectBound bound;  // for a first step; then one that misses
          run(scratch.exec(), step, bound);
          bound.bound = 1e9F;
          run(scratch.exec(), step, bound);
          EXPECT_TRUE(scratch.did()) << count << " elements, k " << k;
        });
      }
    }
  }
}

/// The slack is for histograms and the sample.
TEST(FeedbackSelectScratch, IsBounded) {
  for_each_body([](const Exec& exec) {
    for (const std::size_t count : {std::size_t{1000}, std::size_t{1} << 24}) {
      const std::size_t k = count / 1000, threads = static_cast<std::size_t>(exec.threads);
      const std::size_t elements =
          exec.place == lab::kReference ? count : std::min(count, threads * (2 * k + 4096));
      const FeedbackSelectJob sizes = job_of(count, k);
      EXPECT_LE(kernels::feedback_select_scratch(exec, {&sizes, 1}),
                elements * 8 + count / 256 + threads * 16384 + (std::size_t{512} << 10));
    }
  });
}

TEST(FeedbackSelectUsage, RefusesWhatItCannotDo) {
  for_each_body([](const Exec& exec) {
    std::vector<float> memory(128), value(65);
    std::vector<std::uint32_t> index(65);
    SelectBound state;
    SelectResult result{};
    const kernels::Partition partition(2, 128);
    const FeedbackSelectJob sound{.spans = {memory, memory, 1, {.partition = &partition}},
                                  .index = std::span(index).first(3),
                                  .value = std::span(value).first(3),
                                  .state = &state,
                                  .result = &result};
    const auto refuses = [&](const std::string& why, const Change& change) {
      FeedbackSelectJob wrong = sound;
      change(wrong);
      EXPECT_THAT(
          [&] {
            kernels::feedback_select(exec, {&wrong, 1});
          },
          testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
    };
    refuses("as many elements",
            [&](auto& job) { job.spans.residual = std::span(memory).first(7); });
    refuses("k elements each", [&](auto& job) { job.value = std::span(value).first(2); });
    refuses("at most as many as are not own", [&](auto& job) {
      job.index = index;
      job.value = value;
    });
    refuses("start at a multiple of 64, not at 65", [](auto& job) { job.spans.own.base = 65; });
    refuses("one of the partition's", [](auto& job) { job.spans.own.self = 2; });
    refuses("a value for each index", [&](auto& job) { job.spans.own.index = index; });
    refuses("elements of both sides", [](auto& job) { job.side = kernels::Side::negative; });
    refuses("a state and a result", [](auto& job) { job.state = nullptr; });
    refuses("a state and a result", [](auto& job) { job.result = nullptr; });
    float* const nowhere = nullptr;  // there is no such memory, and no body touches it
    const std::span<float> large(nowhere, std::size_t{1} << 32);
    refuses("fewer than 2^32 elements", [&](auto& job) { job.spans = {large, large}; });
    Exec without = exec;
    without.workspace = without.device_workspace = nullptr;
    EXPECT_THROW(kernels::feedback_select(without, {&sound, 1}), UsageError);
  });
}

}  // namespace
}  // namespace winnow::tests
