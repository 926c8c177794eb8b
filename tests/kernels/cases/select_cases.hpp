// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/feedback_select.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/halves.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {

// Steps of feedback_select. A body must leave what the reference leaves.

/// Units that do not compete, of a parameter that begins at `base`.
struct OwnCase {
  kernels::Partition partition;
  std::uint32_t self = 0;
  std::uint64_t base = 0;
  float bound = 1;
  std::size_t room = 0;  ///< of the list, in elements

  std::uint64_t size(std::uint64_t count) const {
    return partition.local_before(self, base + count) - partition.local_before(self, base);
  }
};

struct SelectStep {
  std::vector<float> gradient, residual;
  float decay = 1;
  std::size_t k = 1;
  std::optional<OwnCase> own = {};
  kernels::Precondition precondition = {};
  std::vector<float> moment = {};  ///< of the precondition, if it has one
  kernels::Side side = kernels::Side::both;
  ElementType type = ElementType::float32;  ///< as which the gradient, of such numbers, is given
  /// Elements in front of each span, to move it off the alignment of vectors.
  struct Offsets {
    std::size_t gradient = 0, residual = 0, moment = 0;
  } offset = {};

  kernels::OwnUnits own_units(std::span<std::uint32_t> index, std::span<float> value) const {
    if (!own) return {};
    return {.partition = &own->partition,
            .self = own->self,
            .base = own->base,
            .bound = own->bound,
            .index = index,
            .value = value};
  }
  kernels::Precondition precondition_by(std::span<float> moments) const {
    kernels::Precondition by = precondition;
    by.moment = moments.empty() ? nullptr : moments.data();
    return by;
  }
};

struct SelectOutcome {
  std::vector<float> gradient, residual, moment;
  std::vector<std::uint16_t> halves;  ///< the gradient where it has 16 bits; then `gradient` stays
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  std::vector<std::uint32_t> own_index;
  std::vector<float> own_value;
  kernels::SelectResult result{};

  explicit SelectOutcome(const SelectStep& step)
      : gradient(behind(step.offset.gradient, step.gradient)),
        residual(behind(step.offset.residual, step.residual)),
        moment(behind(step.offset.moment, step.moment)),
        halves(halves_of(step.type, gradient)),
        index(step.k),
        value(step.k),
        own_index(step.own ? step.own->room : 0),
        own_value(own_index.size()) {}

  kernels::FeedbackSpans spans(const SelectStep& step) {
    const SelectStep::Offsets& at = step.offset;
    return {gradient_of(step.type, gradient, halves).subspan(at.gradient, step.gradient.size()),
            std::span(residual).subspan(at.residual), step.decay,
            step.own_units(own_index, own_value),
            step.precondition_by(std::span(moment).subspan(at.moment))};
  }

 private:
  static std::vector<float> behind(std::size_t offset, std::vector<float> values) {
    values.insert(values.begin(), offset, 0.0F);
    return values;
  }
};

/// A job of these sizes alone, to ask for its scratch.
inline kernels::FeedbackSelectJob job_of(std::size_t count, std::size_t k, std::size_t listed = 0) {
  float* const nowhere = nullptr;
  std::uint32_t* const no_index = nullptr;
  kernels::FeedbackSelectJob job{.spans = {std::span(nowhere, count), {nowhere, count}},
                                 .index = {no_index, k},
                                 .value = {nowhere, k}};
  job.spans.own.index = {no_index, listed};
  job.spans.own.value = {nowhere, listed};
  return job;
}

/// Runs a step with a carried bound, and replaces it by the bound that the step learns.
using SelectBody = std::function<SelectOutcome(const SelectStep&, kernels::SelectBound&)>;

inline SelectOutcome select_by_reference(const SelectStep& step) {
  SelectOutcome out(step);
  Workspace workspace;
  kernels::SelectBound unused;
  const kernels::FeedbackSelectJob job{.spans = out.spans(step),
                                       .index = out.index,
                                       .value = out.value,
                                       .state = &unused,
                                       .result = &out.result,
                                       .side = step.side};
  kernels::feedback_select({.place = lab::kReference, .workspace = &workspace}, {&job, 1});
  return out;
}

inline void expect_equal(const SelectOutcome& got, const SelectOutcome& expected) {
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
  EXPECT_TRUE(same_bits(got.gradient, expected.gradient));
  EXPECT_TRUE(got.halves == expected.halves);
  EXPECT_TRUE(same_bits(got.residual, expected.residual));
  EXPECT_TRUE(same_bits(got.moment, expected.moment));
  EXPECT_EQ(got.result.finite, expected.result.finite);
  EXPECT_EQ(got.result.listed, expected.result.listed);
  EXPECT_TRUE(got.own_index == expected.own_index);
  EXPECT_TRUE(same_bits(got.own_value, expected.own_value));
}

/// A first step. If ties are to stay ties, its residual is zero.
inline SelectStep first_step(Input input, std::size_t count, std::size_t k) {
  const bool random_residual = input == Input::normal || input >= Input::not_finite;
  return {make_input(input, count, 5),
          random_residual ? make_input(Input::normal, count, 6) : std::vector<float>(count), 0.875F,
          k};
}

/// A step and its expected outcome.
struct SelectCase {
  SelectStep step;
  SelectOutcome expected;

  explicit SelectCase(SelectStep of) : step(std::move(of)), expected(select_by_reference(step)) {}
};

inline void expect_equals_reference(const SelectStep& step, const SelectBody& body) {
  SCOPED_TRACE(testing::Message() << step.gradient.size() << " elements, k " << step.k);
  kernels::SelectBound first;
  expect_equal(body(step, first), select_by_reference(step));
}

/// A step with some positions that belong to this rank. k is at most the number of competing
/// elements. The list has room for half of the own elements.
inline SelectStep own_step(Input input, std::size_t count, std::uint32_t owners,
                           std::uint64_t base) {
  SelectStep step = first_step(input, count, 0);
  step.own = OwnCase{.partition = kernels::Partition(owners, base + count + 200),
                     .self = owners - 1,
                     .base = base,
                     .bound = 1.5F};
  const std::uint64_t own = step.own->size(count);
  step.own->room = own / 2 + 1;
  step.k = std::min<std::size_t>((count - own + 49) / 50, count - own);
  return step;
}

/// A step with own units, and residuals that are 0 here and there, for each kind of precondition.
inline std::vector<SelectStep> preconditioned_steps(Input input, std::size_t count) {
  using kernels::Precondition;
  using Kind = Precondition::Kind;
  const Precondition preconditions[] = {
      {.kind = Kind::rate, .rate = 0.3F},
      {.kind = Kind::second_moment,
       .divide =
           {.decay = 0.75F, .weight = 0.25F, .correction = 1.5F, .floor = 1e-3F, .rate = 0.7F}},
      {.kind = Kind::momentum, .add = {.momentum = 0.9F, .rate = 0.7F}},
      {.kind = Kind::momentum, .masked = true, .add = {.momentum = 0.9F, .rate = 0.7F}}};
  std::vector<SelectStep> steps;
  for (const Precondition& by : preconditions) {
    SelectStep& step = steps.emplace_back(own_step(input, count, 3, 64));
    for (std::size_t i = 0; i < count; i += 3) step.residual[i] = 0;
    step.precondition = by;
    if (by.kind != Kind::rate) step.moment = make_input(Input::normal, count, 9);
    if (by.kind == Kind::second_moment) {
      for (float& moment : step.moment) moment *= moment;
    }
  }
  return steps;
}

/// For each of several shares: a first step, and a step of the same k with the bound that the first
/// one learns. One share has positions beyond 2^32: a part lies below that, but nothing here
/// depends on it.
inline std::vector<std::vector<SelectCase>> own_steps(Input input, std::size_t count) {
  struct Share {
    std::uint32_t owners;
    std::uint64_t base;
  };
  std::vector<std::vector<SelectCase>> shares;
  for (const auto& [owners, base] :
       {Share{1, 0}, Share{2, 6464}, Share{3, 64}, Share{7, std::uint64_t{1} << 33}}) {
    std::vector<SelectCase>& steps = shares.emplace_back();
    steps.emplace_back(own_step(input, count, owners, base));
    SelectStep next = steps.front().step;
    next.residual = steps.front().expected.residual;
    steps.emplace_back(std::move(next));
  }
  return shares;
}

/// The step with a gradient of 16 bits.
inline SelectStep as_halves(ElementType type, SelectStep step) {
  round_to(type, step.gradient);
  step.type = type;
  return step;
}

inline constexpr kernels::Side kSides[] = {kernels::Side::positive, kernels::Side::negative};

/// The step, selecting elements of one side.
inline SelectStep on_side(kernels::Side side, SelectStep step) {
  step.side = side;
  return step;
}

/// Steps whose scales jump and whose k changes.
inline std::vector<SelectCase> carried_steps(Input input, std::size_t count,
                                             kernels::Side side = kernels::Side::both) {
  constexpr float kScales[] = {1, 1, 1e3F, 1, 1, 1e-3F, 1e3F, 1};
  std::vector<SelectCase> steps;
  std::uint32_t seed = 10;
  for (const float scale : kScales) {
    SelectStep step{make_input(input, count, ++seed),
                    steps.empty() ? std::vector<float>(count) : steps.back().expected.residual,
                    0.5F, (count + 99) / 100};
    if (seed == 14) step.k = (count + 19) / 20;
    for (float& x : step.gradient) x *= scale;
    steps.emplace_back(on_side(side, std::move(step)));
  }
  return steps;
}

/// Runs steps with the bound carried over.
inline void expect_steps(std::span<const SelectCase> steps, const SelectBody& body) {
  kernels::SelectBound bound;
  for (std::size_t n = 0; n < steps.size(); ++n) {
    const SelectStep& step = steps[n].step;
    SCOPED_TRACE(testing::Message()
                 << step.gradient.size() << " elements, k " << step.k << ", step " << n);
    expect_equal(body(step, bound), steps[n].expected);
  }
}

}  // namespace winnow::tests
