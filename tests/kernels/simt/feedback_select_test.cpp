// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback_select.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <sstream>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/select_cases.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {
namespace {

using kernels::GradientAfter;
using kernels::SelectBound;
using kernels::cuda::SelectLimits;
using kernels::cuda::SelectScratch;
using kernels::cuda::SelectTask;

/// Little room, and samples of few elements, so that small counts meet every path.
constexpr SelectLimits kSmall{.spare = 64, .sample_from = 4000, .sample_runs = 32};

struct OnModel {
  Machine& machine;
  unsigned blocks = 2;
  SelectLimits limits = kSmall;
  GradientAfter gradient_after = GradientAfter::zero;
  std::uint32_t base = 0;
  bool own_bound_in_memory = false;
  int kernels = 0;   // launched
  int barriers = 0;  // that a thread met in kernel number `watched`
  int watched = -1;
  int skipped = -1;  // barrier of that kernel

  SelectOutcome operator()(const SelectStep& step, SelectBound& bound) {
    SelectOutcome out(step);
    const std::size_t count = step.gradient.size();
    const SelectScratch layout(count, kernels::cuda::select_capacity(count, step.k, limits));
    Scratch scratch(layout.bytes);
    kernels::FeedbackSpans spans = out.spans(step);
    const float own_bound = spans.own.bound;
    if (own_bound_in_memory) spans.own.bound = 0;
    const SelectTask task =
        kernels::cuda::make_select_task({.spans = spans,
                                         .base = base,
                                         .index = out.index,
                                         .value = out.value,
                                         .state = &bound,
                                         .result = &out.result,
                                         .own_bound = own_bound_in_memory ? &own_bound : nullptr,
                                         .gradient_after = gradient_after},
                                        scratch.span().data(), limits);
    std::memset(scratch.span().data(), 0, layout.zeroed);
    kernels = 0;
    kernels::cuda::for_each_select_kernel(task, blocks, [&](auto kernel, unsigned grid) {
      const bool is_watched = kernels++ == watched;
      machine.skip_barrier(is_watched ? skipped : -1);
      machine.launch<decltype(kernel)>(grid, task);
      if (is_watched) barriers = machine.barriers();
    });
    return out;
  }
};

std::vector<std::size_t> ks_of(std::size_t count) {
  if (count == 0) return {0};
  std::vector<std::size_t> ks = {0, 1, (count + 99) / 100, (count + 9) / 10, count};
  ks.erase(std::unique(ks.begin(), ks.end()), ks.end());
  return ks;
}

class FeedbackSelectOnModel : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, FeedbackSelectOnModel, testing::ValuesIn(kInputs),
                         [](const auto& test) {
                           std::ostringstream name;
                           name << test.param;
                           return name.str();
                         });

/// A machine for each order. Cases take them in turn.
class Machines {
 public:
  Machines() {
    for (const SimtOrder& order : simt_orders()) machines_.emplace_back(order);
  }
  Machine& next() { return machines_[turn_++ % machines_.size()]; }

 private:
  std::deque<Machine> machines_;
  std::size_t turn_ = 0;
};

TEST_P(FeedbackSelectOnModel, FirstStepEqualsReferenceAtAwkwardSizes) {
  Machines machines;
  for (const std::size_t count : {0U, 1U, 31U, 32U, 33U, 1000U, 4095U, 4097U, 9001U}) {
    for (const std::size_t k : ks_of(count)) {
      expect_equals_reference(first_step(GetParam(), count, k), OnModel{machines.next()});
    }
  }
}

TEST_P(FeedbackSelectOnModel, CarriedBoundEqualsReference) {
  Machines machines;
  for (const std::size_t count : {33U, 4097U, 8193U, 13'001U}) {
    expect_steps_equal_reference(GetParam(), count, OnModel{machines.next(), 3});
  }
}

TEST_P(FeedbackSelectOnModel, OwnUnitsEqualReference) {
  Machines machines;
  for (const std::size_t count : {0U, 1U, 65U, 4095U, 4097U}) {
    expect_own_units_equal_reference(GetParam(), count, OnModel{machines.next(), 3});
  }
}

TEST(FeedbackSelectModel, AnOwnBoundInMemoryIsTheOneThatCounts) {
  Machine machine;
  for (const float own_bound : {0.0F, 0.5F, 2.0F, 1e9F}) {
    SCOPED_TRACE(own_bound);
    SelectStep step = own_step(Input::normal, 9000, 2, 64);
    step.own->bound = own_bound;
    OnModel run{.machine = machine, .own_bound_in_memory = true};
    expect_equals_reference(step, run);
    SelectBound bound;
    EXPECT_EQ(run(step, bound).result.listed_by, own_bound);
  }
}

/// More tiles than a warp looks back over at once.
TEST_P(FeedbackSelectOnModel, ManyTilesEqualReference) {
  if (kSanitized) GTEST_SKIP() << "minutes under a sanitizer; shorter inputs pass the same code";
  Machine machine({.pick = SimtOrder::Pick::random, .seed = 5, .resident = 4});
  expect_equals_reference(first_step(GetParam(), 150'001, 1500), OnModel{machine, 4});
}

TEST(FeedbackSelectModel, ABoundThatIsTooHighOrTooLowIsRepairedAndUnlearnt) {
  Machine machine({.pick = SimtOrder::Pick::random, .seed = 3, .resident = 2});
  for (const Input input : {Input::normal, Input::not_finite}) {
    const SelectStep step{make_input(input, 9000, 21), make_input(Input::normal, 9000, 22), 1, 90};
    const SelectOutcome expected = select_by_reference(step);
    for (const float wrong : {4.5F, 1e30F, 0.0F, 0.5F}) {
      SCOPED_TRACE(wrong);
      SelectBound bound{.bound = wrong, .margin = 0.03F, .k = 90};
      OnModel run{machine};
      const SelectOutcome missed = run(step, bound);
      EXPECT_EQ(missed.result.passes, 2U);
      EXPECT_EQ(missed.result.candidates >= step.k, wrong < 1);
      expect_equal(missed, expected);
      const SelectOutcome again = run(step, bound);
      EXPECT_EQ(again.result.passes, 1U);
      EXPECT_GE(again.result.candidates, step.k);
      expect_equal(again, expected);
    }
  }
}

/// By one bound in all blocks, whichever of them comes first.
TEST(FeedbackSelectModel, TheSampleChoosesABoundThatServes) {
  const SelectStep step = first_step(Input::normal, 40'000, 2000);
  const SelectOutcome expected = select_by_reference(step);
  std::uint64_t candidates = 0;
  for (const SimtOrder& order : simt_orders()) {
    SCOPED_TRACE(testing::Message() << order);
    Machine machine(order);
    SelectBound bound;
    OnModel run{machine, 4, {.spare = 400, .sample_from = 10'000, .sample_runs = 256}};
    const SelectOutcome out = run(step, bound);
    EXPECT_EQ(out.result.passes, 1U);
    EXPECT_GE(out.result.candidates, 2000U);
    EXPECT_LT(out.result.candidates, 4000U);
    if (candidates == 0) candidates = out.result.candidates;
    EXPECT_EQ(out.result.candidates, candidates);
    expect_equal(out, expected);
  }
}

TEST(FeedbackSelectModel, LearnsWhatTheHostLearns) {
  Machine machine;
  SelectBound device{.bound = 2, .margin = 0.05F, .k = 100}, host = device;
  const SelectStep step = first_step(Input::normal, 10'000, 100);
  OnModel{machine, 3, {}}(step, device);
  SelectOutcome on_host(step);
  Workspace workspace;
  kernels::feedback_select({.workspace = &workspace}, {.spans = on_host.spans(step),
                                                       .index = on_host.index,
                                                       .value = on_host.value,
                                                       .state = &host,
                                                       .result = &on_host.result});
  EXPECT_EQ(device.bound, host.bound);
  EXPECT_EQ(device.margin, host.margin);
  EXPECT_EQ(device.k, host.k);
}

/// Own units hold what they will; the others decide whether a pass was enough.
TEST(FeedbackSelectModel, OwnUnitsNeitherFillNorMoveABound) {
  Machine machine({.pick = SimtOrder::Pick::random, .seed = 4, .resident = 2});
  SelectStep step = own_step(Input::normal, 9000, 2, 64);
  for (std::size_t i = 0; i < step.gradient.size(); ++i) {
    const std::uint64_t unit = (64 + i) / kernels::Partition::kUnit;
    if (step.own && step.own->partition.owner_of_unit(unit) == step.own->self) {
      step.gradient[i] = 1e6F;
    }
  }
  SelectBound bound{.bound = 2.9F, .margin = 0.03F, .k = static_cast<std::uint32_t>(step.k)};
  const SelectOutcome out = OnModel{machine}(step, bound);
  EXPECT_EQ(out.result.passes, 1U);
  EXPECT_LT(bound.bound, 10);
  expect_equal(out, select_by_reference(step));
}

TEST(FeedbackSelectModel, IndicesCountFromTheBase) {
  Machine machine;
  const SelectStep step = first_step(Input::normal, 5000, 50);
  const SelectOutcome expected = select_by_reference(step);
  for (const float bound_of_step : {1.0F, 1e9F}) {
    SelectBound bound{.bound = bound_of_step, .margin = 0, .k = 50};
    OnModel run{.machine = machine, .base = 4'000'000'000U};
    SelectOutcome got = run(step, bound);
    for (std::uint32_t& i : got.index) i -= run.base;
    expect_equal(got, expected);
  }
}

TEST(FeedbackSelectModel, RefusesTooManyElements) {
  // No such memory is there, and none is touched.
  float* const nowhere = nullptr;
  const std::span<float> large(nowhere, std::size_t{1} << 31);
  EXPECT_THAT(
      [&] {
        (void)kernels::cuda::make_select_task({.spans = {large, large}}, nullptr);
      },
      testing::ThrowsMessage<UsageError>(
          testing::HasSubstr("fewer than 2^31 elements, not 2147483648")));
}

/// Where zeros are not asked for, the gradient stays, but for marks.
TEST(FeedbackSelectModel, AnUnspecifiedGradientIsOnlyMarked) {
  Machine machine({.pick = SimtOrder::Pick::random, .seed = 9, .resident = 2});
  const SelectStep step = first_step(Input::not_finite, 9000, 300);
  for (const float bound_of_step : {1.0F, 1e9F}) {
    SelectBound bound{.bound = bound_of_step, .margin = 0, .k = 300};
    OnModel run{.machine = machine, .gradient_after = GradientAfter::unspecified};
    SelectOutcome got = run(step, bound);
    for (std::size_t i = 0; i < step.gradient.size(); ++i) {
      const float carried = step.decay * step.residual[i];
      if (std::isfinite(step.gradient[i] + carried)) {
        EXPECT_EQ(got.gradient[i], step.gradient[i]);
      } else {
        EXPECT_TRUE(std::isnan(got.gradient[i]));
      }
    }
    got.gradient = std::vector<float>(step.gradient.size());
    expect_equal(got, select_by_reference(step));
  }
}

TEST(FeedbackSelectModel, MisalignedSpansEqualReference) {
  Machine machine;
  std::vector<float> gradient = make_input(Input::normal, 5003, 1);
  const SelectStep step{{gradient.begin() + 1, gradient.end()}, std::vector<float>(5002), 1, 50};
  const SelectOutcome expected = select_by_reference(step);
  std::vector<float> residual(5003);
  std::vector<std::uint32_t> index(50);
  std::vector<float> value(50);
  kernels::SelectResult result{};
  SelectBound bound;
  const SelectScratch layout(5002, kernels::cuda::select_capacity(5002, 50, kSmall));
  Scratch scratch(layout.bytes);
  std::memset(scratch.span().data(), 0, layout.zeroed);
  const SelectTask task = kernels::cuda::make_select_task(
      {.spans = {std::span(gradient).subspan(1), std::span(residual).subspan(1), 1},
       .index = index,
       .value = value,
       .state = &bound,
       .result = &result},
      scratch.span().data(), kSmall);
  kernels::cuda::for_each_select_kernel(
      task, 2, [&](auto kernel, unsigned grid) { machine.launch<decltype(kernel)>(grid, task); });
  EXPECT_TRUE(index == expected.index);
  EXPECT_TRUE(same_bits(value, expected.value));
  EXPECT_TRUE(same_bits(std::span(residual).subspan(1), expected.residual));
}

/// Without any one of its barriers a kernel goes wrong, or stops, in some order and step.
TEST(FeedbackSelectModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  constexpr std::size_t kCount = 9000;
  struct Trial {
    SelectStep step;
    SelectBound bound;
    unsigned blocks = 2;  // one draws all tiles, so its barriers have the same numbers in any order
  };
  // Every phase has as many tiles as there can be, and what ties is kept up to the last of them.
  SelectStep late_ties = first_step(Input::normal, kCount, 4440);
  for (std::size_t i = 0; i < kCount; ++i) {
    const bool is_large = late_ties.gradient[i] > 0;
    late_ties.gradient[i] = i < 4400 ? 0.5F : is_large ? 2.0F : 1.0F;
    late_ties.residual[i] = 0;
  }
  const std::vector<Trial> trials = {
      {first_step(Input::not_finite, kCount, 90), {.bound = 2.5F, .margin = 0, .k = 90}},
      {first_step(Input::ties, kCount, 90), {.bound = 1e9F, .margin = 0, .k = 90}},
      {late_ties, {.bound = 0, .margin = 0, .k = 4440}, 1},
      {first_step(Input::normal, kCount, 90), {}},
      {own_step(Input::not_finite, kCount, 2, 64), {.bound = 2.5F, .margin = 0, .k = 90}},
  };
  std::vector<SelectOutcome> expected;
  std::vector<std::uint64_t> passes, candidates;
  for (const Trial& trial : trials) {
    expected.push_back(select_by_reference(trial.step));
    Machine machine;
    SelectBound bound = trial.bound;
    const kernels::SelectResult result = OnModel{machine, trial.blocks}(trial.step, bound).result;
    passes.push_back(result.passes);
    candidates.push_back(result.candidates);
  }
  for (int watched = 0; watched < 3; ++watched) {
    const auto works = [&](const SimtOrder& order, std::size_t t, int skipped,
                           int* barriers = nullptr) {
      Machine machine(order);
      OnModel run{machine, trials[t].blocks};
      run.watched = watched;
      run.skipped = skipped;
      SelectBound bound = trials[t].bound;
      const SelectOutcome got = run(trials[t].step, bound);
      if (barriers != nullptr) *barriers = std::max(*barriers, run.barriers);
      return got.index == expected[t].index && same_bits(got.value, expected[t].value) &&
             same_bits(got.residual, expected[t].residual) &&
             same_bits(got.gradient, expected[t].gradient) &&
             got.own_index == expected[t].own_index &&
             same_bits(got.own_value, expected[t].own_value) &&
             got.result.listed == expected[t].result.listed &&
             got.result.finite == expected[t].result.finite &&
             // The bound shows in these alone.
             got.result.passes == passes[t] && got.result.candidates == candidates[t];
    };
    int barriers = 0;
    for (std::size_t t = 0; t < trials.size(); ++t) EXPECT_TRUE(works({}, t, -1, &barriers));
    // In StreamPass, kernel 0, the last barrier of a block that drew all tiles keeps it from saying
    // too early that it is done, which matters where another block, without a tile, comes after it.
    // No order here brings that about; where blocks share the tiles, it has another number.
    if (watched == 0) --barriers;
    for (int skipped = 0; skipped < barriers; ++skipped) {
      bool missed = false;
      for (const SimtOrder& order : simt_orders(40)) {
        if (missed) break;
        for (std::size_t t = 0; t < trials.size() && !missed; ++t) {
          missed = !works_in_a_child([&] { return works(order, t, skipped); });
        }
      }
      EXPECT_TRUE(missed) << "kernel " << watched << ", barrier " << skipped << " of " << barriers;
    }
  }
}

}  // namespace
}  // namespace winnow::tests
