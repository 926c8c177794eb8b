// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>
#include <winnow/error.hpp>

#include "tests/kernels/float_modes.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

using kernels::SelectBound;
using kernels::SelectResult;

/// What a step leaves behind.
struct Outcome {
  std::vector<float> gradient, residual;
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  SelectResult result{};
};

struct Step {
  std::vector<float> gradient, residual;
  float decay = 1;
  std::size_t k = 1;
};

Outcome run(const Step& step, const Exec& exec, SelectBound& bound) {
  Outcome out{step.gradient, step.residual, std::vector<std::uint32_t>(step.k),
              std::vector<float>(step.k)};
  Workspace workspace;
  Exec with_workspace = exec;
  with_workspace.workspace = &workspace;
  kernels::feedback_select(with_workspace, {.spans = {out.gradient, out.residual, step.decay},
                                            .index = out.index,
                                            .value = out.value,
                                            .state = &bound,
                                            .result = &out.result});
  if (exec.place == Place::cpu) {
    // Bounded for any input; the slack is histograms, the sample and what a Workspace rounds up to.
    const std::size_t threads = static_cast<std::size_t>(exec.threads);
    const std::size_t elements = std::min(step.gradient.size(), threads * (2 * step.k + 4096));
    EXPECT_LE(workspace.capacity(),
              2 * (elements * 8 + threads * 16384 + (std::size_t{512} << 10)));
  }
  return out;
}

Outcome specified(const Step& step) {
  SelectBound unused;
  return run(step, {.place = Place::reference}, unused);
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  // Not EXPECT_EQ: a failure would print a million numbers.
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
  EXPECT_TRUE(same_bits(got.gradient, expected.gradient));
  EXPECT_TRUE(same_bits(got.residual, expected.residual));
  EXPECT_EQ(got.result.finite, expected.result.finite);
}

/// The laws, from the inputs alone: they hold for the reference body too.
void expect_laws(const Step& step, const Outcome& out) {
  const std::size_t count = step.gradient.size();
  std::vector<float> acc(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float kept = step.decay * step.residual[i];
    acc[i] = step.gradient[i] + kept;
  }
  const auto finite = [&](std::size_t i) { return std::isfinite(acc[i]); };

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
  std::size_t not_conserved = 0, finite_count = 0, wrongly_selected = 0;
  // Smallest selected and largest unselected by (|acc|, lowest index wins).
  for (std::size_t i = 0; i < count; ++i) {
    if (finite(i)) {
      ++finite_count;
      not_conserved += decoded[i] + out.residual[i] != acc[i];
      not_conserved += selected[i] && std::bit_cast<std::uint32_t>(out.residual[i]) != 0;
    } else {
      not_conserved += decoded[i] != 0 || std::bit_cast<std::uint32_t>(out.residual[i]) !=
                                              std::bit_cast<std::uint32_t>(step.residual[i]);
    }
  }
  EXPECT_EQ(not_conserved, 0u);
  EXPECT_EQ(out.result.finite, finite_count == count);

  if (finite_count < step.k) {
    std::size_t filling = step.k - finite_count;
    for (std::size_t i = 0; i < count; ++i) {
      const bool expected = finite(i) || (filling > 0 && filling-- > 0);
      wrongly_selected += selected[i] != expected;
    }
  } else {
    float smallest = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < count; ++i) {
      if (!selected[i]) continue;
      wrongly_selected += !finite(i);
      smallest = std::min(smallest, std::fabs(acc[i]));
    }
    bool tie_left_out = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (!finite(i) || std::fabs(acc[i]) < smallest) continue;
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

std::vector<std::size_t> ks_of(std::size_t count) {
  std::vector<std::size_t> ks = {1, (count + 99) / 100, (count + 9) / 10, count};
  ks.erase(std::unique(ks.begin(), ks.end()), ks.end());
  return ks;
}

class FeedbackSelect : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, FeedbackSelect, testing::ValuesIn(kInputs), [](const auto& test) {
  std::ostringstream name;
  name << test.param;
  return name.str();
});

/// One first step, for each k, equals the specification and obeys the laws.
void first_steps(Input input, std::size_t count, std::span<const std::size_t> ks) {
  // A residual of zeros keeps ties ties, and the order of what ascends.
  const bool random_residual = input == Input::normal || input >= Input::not_finite;
  Step step{make_input(input, count, 5),
            random_residual ? make_input(Input::normal, count, 6) : std::vector<float>(count),
            0.875f};
  for (const std::size_t k : ks) {
    step.k = k;
    const Outcome expected = specified(step);
    expect_laws(step, expected);
    for_each_target([&] {
      SelectBound first;
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(testing::Message() << count << " elements, k " << k << ", " << threads);
        SelectBound bound;
        expect_equal(run(step, {.threads = threads}, bound), expected);
        if (threads == 1) first = bound;
        EXPECT_EQ(bound.bound, first.bound);
        EXPECT_EQ(bound.margin, first.margin);
      }
    });
  }
}

TEST_P(FeedbackSelect, FirstStepEqualsReference) {
  for (const std::size_t count : kSizes) first_steps(GetParam(), count, ks_of(count));
}

TEST_P(FeedbackSelect, FirstStepOfManyEqualsReference) {
  constexpr std::size_t kKs[] = {1, (kLargeSize + 99) / 100};
  first_steps(GetParam(), kLargeSize, kKs);
}

/// Steps with the bound carried over, scales that jump, and a k that changes.
TEST_P(FeedbackSelect, CarriedBoundEqualsReference) {
  constexpr float kScales[] = {1, 1, 1e3f, 1, 1, 1e-3f, 1e3f, 1};
  for (const std::size_t count : {std::size_t{33}, std::size_t{4097}, std::size_t{300001}}) {
    std::vector<Step> steps;
    std::vector<Outcome> expected;
    for (const float scale : kScales) {
      const auto seed = static_cast<std::uint32_t>(11 + steps.size());
      steps.push_back({make_input(GetParam(), count, seed),
                       expected.empty() ? std::vector<float>(count) : expected.back().residual,
                       0.5f, seed == 14 ? (count + 19) / 20 : (count + 99) / 100});
      for (float& x : steps.back().gradient) x *= scale;
      expected.push_back(specified(steps.back()));
    }
    for_each_target([&] {
      for (const int threads : {1, 3}) {
        SelectBound bound;
        for (std::size_t n = 0; n < steps.size(); ++n) {
          SCOPED_TRACE(testing::Message() << count << " elements, step " << n);
          const Outcome got = run(steps[n], {.threads = threads}, bound);
          expect_equal(got, expected[n]);
          EXPECT_LE(got.result.passes, 2u);
        }
      }
    });
  }
}

TEST_P(FeedbackSelect, ResultsDoNotDependOnTheCallersFloatMode) {
  const Step step{make_input(GetParam(), 20001, 7), make_input(Input::denormal, 20001, 8), 0.5f,
                  201};
  const Outcome expected = specified(step);
  const auto expect_the_same = [&](const Exec& exec) {
    Outcome got;
    {
      const FlushToZero flush;
      const auto mode = FlushToZero::read();
      SelectBound bound;
      got = run(step, exec, bound);
      EXPECT_EQ(FlushToZero::read(), mode);
    }
    expect_equal(got, expected);
  };
  expect_the_same({.place = Place::reference});
  for_each_target([&] {
    for (const int threads : {1, 2}) expect_the_same({.threads = threads});
  });
}

TEST(FeedbackSelectPasses, ABoundTooHighRepeatsThePassAndIsUnlearnt) {
  for (const Input input : {Input::normal, Input::not_finite}) {
    const Step step{make_input(input, 50000, 21), make_input(Input::normal, 50000, 22), 1, 500};
    const Outcome expected = specified(step);
    for (const int threads : {1, 3}) {
      SelectBound bound{.bound = 3.9f, .margin = 0.03f, .k = 500};
      const Outcome missed = run(step, {.threads = threads}, bound);
      EXPECT_EQ(missed.result.passes, 2u);
      EXPECT_LT(missed.result.candidates, step.k);
      EXPECT_GT(missed.result.candidates, 0u);
      expect_equal(missed, expected);
      const Outcome again = run(step, {.threads = threads}, bound);
      EXPECT_EQ(again.result.passes, 1u);
      EXPECT_GE(again.result.candidates, step.k);
      expect_equal(again, expected);
    }
  }
}

TEST(FeedbackSelectPasses, MinusZeroSurvivesARepeatedPass) {
  Step step{std::vector<float>(5000, -0.0f), std::vector<float>(5000, -0.0f), 1, 50};
  step.gradient[4999] = 2;
  SelectBound bound{.bound = 1, .margin = 0, .k = 50};
  const Outcome got = run(step, {}, bound);
  EXPECT_EQ(got.result.passes, 2u);
  expect_equal(got, specified(step));
}

TEST(FeedbackSelectPasses, SteadyStateTakesOnePassAndFewCandidates) {
  const std::size_t count = 400000, k = 4000;
  SelectBound bound;
  std::vector<float> residual(count);
  for (std::uint32_t step = 0; step < 60; ++step) {
    const Outcome out =
        run({make_input(Input::normal, count, 100 + step), residual, 1, k}, {}, bound);
    residual = out.residual;
    if (step < 40) continue;
    EXPECT_EQ(out.result.passes, 1u);
    EXPECT_GE(out.result.candidates, k);
    EXPECT_LT(out.result.candidates, k + k / 3);
  }
}

TEST(FeedbackSelectPasses, AllocatesNothingAfterTheFirstStep) {
  const std::size_t count = 300000;
  Workspace workspace;
  SelectBound bound;
  std::vector<float> residual(count), value(3000);
  std::vector<std::uint32_t> index(3000);
  std::uint64_t allocations = 0;
  for (const Input input : {Input::normal, Input::all_equal, Input::ascending, Input::all_zero}) {
    std::vector<float> gradient = make_input(input, count, 30);
    SelectResult result{};
    kernels::feedback_select({.threads = 3, .workspace = &workspace},
                             {.spans = {gradient, residual},
                              .index = index,
                              .value = value,
                              .state = &bound,
                              .result = &result});
    if (allocations == 0) allocations = workspace.allocations();
    EXPECT_EQ(workspace.allocations(), allocations);
  }
}

TEST(FeedbackSelectUsage, RefusesWhatTheContractExcludes) {
  Workspace workspace;
  const Exec exec{.workspace = &workspace};
  std::vector<float> gradient(8), residual(8), value(3);
  std::vector<std::uint32_t> index(3);
  SelectBound bound;
  SelectResult result{};
  const auto call = [&](const Exec& e, std::size_t count, std::size_t indices, std::size_t values) {
    kernels::feedback_select(e, {.spans = {std::span(gradient).first(count), residual},
                                 .index = std::span(index).first(indices),
                                 .value = std::span(value).first(values),
                                 .state = &bound,
                                 .result = &result});
  };
  EXPECT_NO_THROW(call(exec, 8, 3, 3));
  EXPECT_THROW(call(exec, 7, 3, 3), UsageError);
  EXPECT_THROW(call(exec, 8, 3, 2), UsageError);
  EXPECT_THROW(call({}, 8, 3, 3), UsageError);
  std::vector<std::uint32_t> too_many(9);
  std::vector<float> values(9);
  EXPECT_THROW(kernels::feedback_select(exec, {.spans = {gradient, residual},
                                               .index = too_many,
                                               .value = values,
                                               .state = &bound,
                                               .result = &result}),
               UsageError);
}

}  // namespace
}  // namespace winnow::tests
