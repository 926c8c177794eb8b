// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A precondition in the pass of error feedback does what it does in a pass of its own.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/elementwise.hpp"
#include "kernels/feedback_select.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/select_cases.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {
namespace {

using kernels::Precondition;
using Kind = Precondition::Kind;

const Precondition kPreconditions[] = {
    {.kind = Kind::rate, .rate = 0.3F},
    {.kind = Kind::second_moment,
     .divide = {.decay = 0.75F, .weight = 0.25F, .correction = 1.5F, .floor = 1e-3F, .rate = 0.7F}},
    {.kind = Kind::momentum, .add = {.momentum = 0.9F, .rate = 0.7F}},
    {.kind = Kind::momentum, .masked = true, .add = {.momentum = 0.9F, .rate = 0.7F}}};

bool has_moment(const Precondition& by) {
  return by.kind == Kind::second_moment || by.kind == Kind::momentum;
}

/// A step with own units and residuals that are 0 here and there, and its moments.
struct Job {
  SelectStep step;
  std::vector<float> moment;

  Job(Input input, std::size_t count, const Precondition& by)
      : step(own_step(input, count, 3, 64)), moment(make_input(Input::normal, count, 9)) {
    for (std::size_t i = 0; i < count; i += 3) step.residual[i] = 0;
    for (float& m : moment) m *= by.kind == Kind::second_moment ? m : 1;
  }
  Precondition by(Precondition kind, std::vector<float>& moments) const {
    kind.moment = has_moment(kind) ? moments.data() : nullptr;
    return kind;
  }
  /// By a pass of its own: the outcome, and the moments after it.
  std::pair<SelectOutcome, std::vector<float>> expected(const Precondition& kind) const {
    SelectStep after = step;
    std::vector<float> moments = moment;
    kernels::precondition({.place = Place::reference}, after.gradient, after.residual,
                          by(kind, moments));
    return {select_by_reference(after), std::move(moments)};
  }
};

/// In one pass, with a carried bound.
std::pair<SelectOutcome, std::vector<float>> run(const Exec& exec, const Job& job, Precondition by,
                                                 float carried) {
  const SelectStep& step = job.step;
  OnPlace<float> gradient(exec, step.gradient), residual(exec, step.residual),
      moment(exec, job.moment), value(exec, step.k), own_value(exec, step.own->room);
  OnPlace<std::uint32_t> index(exec, step.k), own_index(exec, step.own->room);
  const kernels::SelectBound bound{.bound = carried,
                                   .k = carried > 0 ? static_cast<std::uint32_t>(step.k) : 0};
  OnPlace<kernels::SelectBound> state(exec, std::vector{bound});
  OnPlace<kernels::SelectResult> result(exec, 1);
  if (has_moment(by)) by.moment = moment.data();
  const kernels::FeedbackSelectJob select{
      .spans = {gradient.span(), residual.span(), step.decay,
                step.own_units(own_index.span(), own_value.span()), by},
      .index = index.span(),
      .value = value.span(),
      .state = state.data(),
      .result = result.data()};
  kernels::feedback_select(exec, {&select, 1});
  SelectOutcome out(step);
  out.gradient = gradient.download();
  out.residual = residual.download();
  out.index = index.download();
  out.value = value.download();
  out.own_index = own_index.download();
  out.own_value = own_value.download();
  out.result = result.download()[0];
  if (out.result.listed > out.own_index.size()) {  // a list that lacks room has no meaning
    out.own_index = std::vector<std::uint32_t>(out.own_index.size());
    out.own_value = std::vector<float>(out.own_value.size());
  }
  return {std::move(out), moment.download()};
}

// A bound that is too high repeats the pass, but no step of a moment.
TEST(FeedbackPrecondition, InThePassOfTheSelection) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{999}, many(300'001)}) {
    for (const Input input : {Input::normal, Input::not_finite, Input::mostly_zero}) {
      for (const Precondition& by : kPreconditions) {
        const Job job(input, count, by);
        auto [expected, moments] = job.expected(by);
        if (expected.result.listed > expected.own_index.size()) {
          expected.own_index = std::vector<std::uint32_t>(expected.own_index.size());
          expected.own_value = std::vector<float>(expected.own_value.size());
        }
        for (const float carried : {0.0F, 0.01F, 1e9F}) {
          SCOPED_TRACE(testing::Message()
                       << count << " elements, " << input << ", kind " << static_cast<int>(by.kind)
                       << (by.masked ? " masked" : "") << ", bound " << carried);
          for_each_body([&](const Exec& exec) {
            const auto [out, after] = run(exec, job, by, carried);
            expect_equal(out, expected);
            EXPECT_TRUE(same_bits(after, has_moment(by) ? moments : job.moment));
          });
        }
      }
    }
  }
}

// All that reaches the bound, none of which is own.
TEST(FeedbackPrecondition, InThePassOfAThreshold) {
  const std::size_t count = many(20'003);
  for (const Precondition& by : kPreconditions) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(by.kind));
    const Job job(Input::normal, count, by);
    const auto select = [&](const Exec& exec, std::vector<float> gradients, Precondition made) {
      OnPlace<float> gradient(exec, gradients), residual(exec, job.step.residual),
          moment(exec, job.moment), value(exec, count);
      OnPlace<std::uint32_t> index(exec, count);
      OnPlace<std::uint64_t> kept(exec, 1);
      OnPlace<kernels::SelectResult> result(exec, 1);
      if (has_moment(made)) made.moment = moment.data();
      kernels::feedback_threshold(exec,
                                  {.spans = {gradient.span(), residual.span(), 0.5F, {}, made},
                                   .bound = 0.5F,
                                   .index = index.span(),
                                   .value = value.span(),
                                   .kept = kept.data(),
                                   .result = result.data()});
      std::vector<float> seen = residual.download(), values = value.download();
      values.resize(kept.download()[0]);
      seen.insert(seen.end(), values.begin(), values.end());
      return seen;
    };
    std::vector<float> gradient = job.step.gradient, moments = job.moment;
    kernels::precondition({.place = Place::reference}, gradient, job.step.residual,
                          job.by(by, moments));
    Workspace workspace;
    const auto expected =
        select({.place = Place::reference, .workspace = &workspace}, gradient, {});
    EXPECT_GT(expected.size(), count);
    for_each_body([&](const Exec& exec) {
      EXPECT_TRUE(same_bits(select(exec, job.step.gradient, by), expected));
    });
  }
}

}  // namespace
}  // namespace winnow::tests
