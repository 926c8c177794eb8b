// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/feedback_select.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
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

using kernels::SelectBound;
using kernels::cuda::OneSelect;
using kernels::cuda::SelectLimits;
using kernels::cuda::SelectMemory;
using kernels::cuda::SelectScratch;
using kernels::cuda::SelectShape;
using kernels::cuda::SelectTask;

/// Little room, and samples of few elements, so that small counts meet every path.
constexpr SelectLimits kSmall{.spare = 64, .sample_from = 4000, .sample_runs = 32};

kernels::FeedbackSelectJob job_of(const SelectStep& step, SelectOutcome& out, SelectBound& bound) {
  return {.spans = out.spans(step),
          .index = out.index,
          .value = out.value,
          .state = &bound,
          .result = &out.result,
          .side = step.side};
}

struct OnModel {
  Machine& machine;
  unsigned blocks = 2;
  SelectLimits limits = kSmall;
  int kernels = 0;   // launched
  int barriers = 0;  // that a thread met in kernel number `watched`
  int watched = -1;
  int skipped = -1;  // barrier of that kernel

  SelectOutcome operator()(const SelectStep& step, SelectBound& bound) {
    SelectOutcome out(step);
    const kernels::FeedbackSelectJob job = job_of(step, out, bound);
    const SelectScratch layout = kernels::cuda::select_scratch(job, limits);
    Scratch scratch(layout.bytes);
    const SelectTask task = kernels::cuda::make_select_task(
        job, SelectMemory::in(scratch.span().data(), layout), limits);
    std::memset(scratch.span().data(), 0, layout.zeroed);
    kernels = 0;
    kernels::cuda::for_each_select_kernel(OneSelect{task}, SelectShape::of(task),
                                          [&](const auto& kernel) {
                                            const bool is_watched = kernels++ == watched;
                                            machine.skip_barrier(is_watched ? skipped : -1);
                                            machine.launch(blocks, kernel);
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

/// A machine for each order; cases take them in turn.
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
    expect_steps(carried_steps(GetParam(), count), OnModel{machines.next(), 3});
  }
}

TEST_P(FeedbackSelectOnModel, OneSideEqualsReference) {
  Machines machines;
  for (const kernels::Side side : kSides) {
    for (const std::size_t count : {1U, 33U, 4097U, 9001U}) {
      for (const std::size_t k : ks_of(count)) {
        const SelectStep step = on_side(side, first_step(GetParam(), count, k));
        expect_equals_reference(step, OnModel{machines.next()});
        SelectBound bound{.bound = 1e9F, .k = static_cast<std::uint32_t>(k)};
        expect_equal(OnModel{machines.next()}(step, bound), select_by_reference(step));
      }
    }
    expect_steps(carried_steps(GetParam(), 8193, side), OnModel{machines.next(), 3});
  }
}

TEST_P(FeedbackSelectOnModel, OwnUnitsEqualReference) {
  Machines machines;
  for (const std::size_t count : {0U, 1U, 65U, 4095U, 4097U}) {
    for (const auto& steps : own_steps(GetParam(), count)) {
      expect_steps(steps, OnModel{machines.next(), 3});
    }
  }
}

TEST(FeedbackSelectModel, PreconditionsEqualReference) {
  Machines machines;
  for (const Input input : {Input::normal, Input::not_finite, Input::mostly_zero}) {
    for (const std::size_t count : {65U, 4097U}) {
      for (const SelectStep& step : preconditioned_steps(input, count)) {
        SCOPED_TRACE(testing::Message() << input << static_cast<int>(step.precondition.kind));
        OnModel run{machines.next(), 3};
        for (const float carried : {0.0F, 1e9F}) {
          SelectBound bound{.bound = carried,
                            .k = carried > 0 ? static_cast<std::uint32_t>(step.k) : 0};
          expect_equal(run(step, bound), select_by_reference(step));
        }
      }
    }
  }
}

/// Whole tiles that cannot be moved in vectors, each memory for itself.
TEST(FeedbackSelectModel, MisalignedMemoryEqualsReference) {
  Machines machines;
  constexpr std::size_t kCount = 9001;
  for (const Input input : {Input::normal, Input::not_finite}) {
    std::vector<SelectStep> steps = preconditioned_steps(input, kCount);
    steps.push_back(first_step(input, kCount, 90));
    steps.push_back(own_step(input, kCount, 3, 64));
    for (SelectStep& step : steps) {
      for (const SelectStep::Offsets offset :
           {SelectStep::Offsets{1, 0, 0}, {0, 2, 0}, {0, 0, 3}}) {
        step.offset = offset;
        if (step.moment.empty()) step.offset.moment = 0;
        expect_equals_reference(step, OnModel{machines.next(), 3});
      }
    }
  }
}

/// Tiles that are whole and not, in words of 4 elements and off their alignment, by candidates and
/// from the whole residual.
TEST(FeedbackSelectModel, HalvesEqualReference) {
  Machines machines;
  for (const ElementType type : kHalves) {
    for (const Input input : {Input::normal, Input::not_finite, Input::denormal}) {
      std::vector<SelectStep> steps = preconditioned_steps(input, 9001);
      steps.push_back(first_step(input, 9001, 90));
      steps.push_back(on_side(kernels::Side::negative, steps.back()));
      steps.push_back(first_step(input, 67, 3));
      for (SelectStep& step : steps) {
        step = as_halves(type, std::move(step));
        const SelectOutcome expected = select_by_reference(step);
        for (const float carried : {0.0F, 1e9F}) {
          SelectBound bound{.bound = carried,
                            .k = carried > 0 ? static_cast<std::uint32_t>(step.k) : 0};
          expect_equal(OnModel{machines.next(), 3}(step, bound), expected);
        }
        step.offset.gradient = 3;
        expect_equals_reference(step, OnModel{machines.next(), 3});
      }
    }
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

/// All blocks use one bound, whichever of them comes first.
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

/// Whatever the candidates far above the bound are, fewer than k or not, and whatever their sizes.
/// Where they are fewer, one digit less tells which is the k-th.
TEST(FeedbackSelectModel, TheKthIsFoundNearTheBoundAndFarAboveIt) {
  constexpr std::size_t kCount = 9001, kKept = 90;
  std::map<std::size_t, int> barriers;  // of the cut, where one block does all of it
  for (const std::size_t far : {0U, 1U, 89U, 90U, 91U, 140U}) {
    SCOPED_TRACE(far);
    SelectStep step = first_step(Input::normal, kCount, kKept);
    std::fill(step.residual.begin(), step.residual.end(), 0.0F);
    for (std::size_t i = 0; i < kCount; ++i) {  // 150 of them reach the bound
      const auto part = static_cast<float>(i) / kCount;
      const std::size_t n = i / 60;
      step.gradient[i] = i % 60 != 7 ? 0.5F * part : n < far ? 1000 + part : 1 + 0.4F * part;
    }
    const SelectOutcome expected = select_by_reference(step);
    for (const SimtOrder& order : simt_orders(4)) {
      Machine machine(order);
      SelectBound bound{.bound = 1, .margin = 0, .k = kKept};
      OnModel run{machine, 3};
      run.watched = 1;
      const SelectOutcome out = run(step, bound);
      EXPECT_EQ(out.result.passes, 1U);
      EXPECT_EQ(out.result.candidates, 150U);
      expect_equal(out, expected);
      if (order.resident == 1) barriers[far] = run.barriers;
    }
  }
  EXPECT_EQ(barriers[1], barriers[89]);
  EXPECT_LT(barriers[89], barriers[90]);
}

/// Large elements of the other side would make it too high.
TEST(FeedbackSelectModel, TheSampleCountsOnlyTheSide) {
  Machine machine;
  for (const kernels::Side side : kSides) {
    SelectStep step = on_side(side, first_step(Input::normal, 40'000, 2000));
    const kernels::SideKey key(side);
    for (float& x : step.gradient) x *= key.has(x) ? 1.0F : 100.0F;
    SelectBound bound;
    OnModel run{machine, 4, {.spare = 400, .sample_from = 10'000, .sample_runs = 256}};
    const SelectOutcome out = run(step, bound);
    EXPECT_EQ(out.result.passes, 1U);
    EXPECT_LT(out.result.candidates, 4000U);
    expect_equal(out, select_by_reference(step));
  }
}

/// Steps whose tasks share each launch: empty ones and those of one tile beside longer ones, with
/// own units and without.
std::vector<SelectStep> steps_together(Input input) {
  std::vector<SelectStep> steps;
  for (const std::size_t count : {0U, 4097U, 1U, 4096U, 9001U, 70U, 5000U, 0U}) {
    const std::size_t k = (count + 19) / 20;
    const bool has_own = count == 9001 || count == 70;
    steps.push_back(has_own ? own_step(input, count, 3, 64) : first_step(input, count, k));
  }
  for (const SelectStep& step : preconditioned_steps(input, 5000)) steps.push_back(step);
  return steps;
}

/// Runs all steps in the same launches.
std::vector<SelectOutcome> run_together(Machine& machine, const std::vector<SelectStep>& steps,
                                        const SelectShape& shape,
                                        std::vector<SelectBound>& bounds) {
  std::vector<SelectOutcome> outs(steps.begin(), steps.end());
  std::vector<kernels::FeedbackSelectJob> jobs;
  std::vector<SelectScratch> layouts;
  std::size_t zeroed = 0, bytes = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    jobs.push_back(job_of(steps[i], outs[i], bounds[i]));
    layouts.push_back(kernels::cuda::select_scratch(jobs[i], kSmall));
    zeroed += layouts[i].zeroed;
    bytes += layouts[i].bytes;
  }
  Scratch scratch(bytes);
  std::memset(scratch.span().data(), 0, zeroed);
  SelectMemory memory{scratch.span().data(), scratch.span().data() + zeroed};
  std::vector<SelectTask> tasks;
  std::uint32_t tiles = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    tasks.push_back(kernels::cuda::make_select_task(jobs[i], memory, kSmall));
    tasks.back().first_tile = tiles;
    tiles += kernels::cuda::pass_tiles(tasks.back().count);
    memory.zeroed += layouts[i].zeroed;
    memory.rest += layouts[i].bytes - layouts[i].zeroed;
  }
  const kernels::cuda::ManySelects many{tasks.data(), static_cast<std::uint32_t>(tasks.size()),
                                        tiles, &tasks.front().control->stream_ticket};
  kernels::cuda::for_each_select_kernel(many, shape,
                                        [&](const auto& kernel) { machine.launch(3, kernel); });
  return outs;
}

/// In the first step, in one with a bound that is too high for some, and in one with learnt bounds.
TEST_P(FeedbackSelectOnModel, ManyTasksEqualReference) {
  for (const SimtOrder& order : simt_orders()) {
    SCOPED_TRACE(testing::Message() << order);
    Machine machine(order);
    std::vector<SelectStep> steps = steps_together(GetParam());
    for (const bool one_side : {false, true}) {
      for (std::size_t i = 0; one_side && i < steps.size(); ++i) {
        steps[i].own.reset();
        if (i % 3 != 0) steps[i].side = kSides[i % 2];
      }
      std::vector<SelectBound> bounds(steps.size());
      for (int number = 0; number < 3; ++number) {
        const auto outs = run_together(machine, steps, {!one_side, true, true, one_side}, bounds);
        for (std::size_t i = 0; i < steps.size(); ++i) {
          SCOPED_TRACE(testing::Message() << "step " << number << ", task " << i);
          expect_equal(outs[i], select_by_reference(steps[i]));
        }
        if (number == 0) bounds[1].bound = bounds[4].bound = 1e9F;
      }
    }
  }
}

TEST(FeedbackSelectModel, RefusesTooManyElements) {
  // There is no such memory, and nothing touches it.
  float* const nowhere = nullptr;
  const std::span<float> large(nowhere, std::size_t{1} << 31);
  EXPECT_THAT(
      [&] {
        (void)kernels::cuda::make_select_task({.spans = {large, large}}, {nullptr, nullptr});
      },
      testing::ThrowsMessage<UsageError>(
          testing::HasSubstr("fewer than 2^31 elements, not 2147483648")));
}

/// Without any one of its barriers a kernel goes wrong, or stops, in some order and step.
TEST(FeedbackSelectModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  constexpr std::size_t kCount = 9000;
  struct Trial {
    SelectStep step;
    SelectBound bound;
    unsigned blocks = 2;  // one draws all tiles: its barriers keep their numbers in any order
  };
  // Every phase has the largest number of tiles, and ties are kept up to the last tile.
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
             // Only these two show the bound.
             got.result.passes == passes[t] && got.result.candidates == candidates[t];
    };
    int barriers = 0;
    for (std::size_t t = 0; t < trials.size(); ++t) EXPECT_TRUE(works({}, t, -1, &barriers));
    // The loop leaves out one barrier: in StreamPass, kernel 0, the last barrier of a block that
    // drew all tiles. It keeps thread 0 from ending the task before other warps have said what they
    // met. No order here brings that about. If blocks share the tiles, the barrier has another
    // number.
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
