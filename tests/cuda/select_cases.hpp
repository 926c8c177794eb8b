// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cuda/feedback_select.hpp"
#include "kernels/feedback_select.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {

// Steps of feedback_select for bodies that run on a device, or on the model of one: what they must
// leave is what the reference leaves.

struct SelectStep {
  std::vector<float> gradient, residual;
  float decay = 1;
  std::size_t k = 1;
};

struct SelectOutcome {
  std::vector<float> gradient, residual;
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  kernels::SelectResult result{};
};

/// Runs a step with a carried bound, and leaves the bound that it learnt.
using SelectBody = std::function<SelectOutcome(const SelectStep&, kernels::SelectBound&)>;

inline SelectOutcome select_by_reference(const SelectStep& step) {
  SelectOutcome out{step.gradient, step.residual, std::vector<std::uint32_t>(step.k),
                    std::vector<float>(step.k)};
  Workspace workspace;
  kernels::SelectBound unused;
  out.result = kernels::feedback_select({.place = Place::reference, .workspace = &workspace},
                                        {out.gradient, out.residual, step.decay}, unused, out.index,
                                        out.value);
  return out;
}

inline void expect_equal(const SelectOutcome& got, const SelectOutcome& expected) {
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
  EXPECT_TRUE(same_bits(got.gradient, expected.gradient));
  EXPECT_TRUE(same_bits(got.residual, expected.residual));
  EXPECT_EQ(got.result.finite, expected.result.finite);
}

/// A first step, whose residual is zero where ties are to stay ties.
inline SelectStep first_step(Input input, std::size_t count, std::size_t k) {
  const bool random_residual = input == Input::normal || input >= Input::not_finite;
  return {make_input(input, count, 5),
          random_residual ? make_input(Input::normal, count, 6) : std::vector<float>(count), 0.875F,
          k};
}

inline void expect_equals_reference(const SelectStep& step, const SelectBody& body) {
  SCOPED_TRACE(testing::Message() << step.gradient.size() << " elements, k " << step.k);
  kernels::SelectBound first;
  expect_equal(body(step, first), select_by_reference(step));
}

/// Steps with the bound carried over, scales that jump, and a k that changes.
inline void expect_steps_equal_reference(Input input, std::size_t count, const SelectBody& body) {
  constexpr float kScales[] = {1, 1, 1e3F, 1, 1, 1e-3F, 1e3F, 1};
  kernels::SelectBound bound;
  std::vector<float> residual(count);
  std::uint32_t seed = 10;
  for (const float scale : kScales) {
    SCOPED_TRACE(testing::Message() << count << " elements, scale " << scale);
    SelectStep step{make_input(input, count, ++seed), residual, 0.5F, (count + 99) / 100};
    if (seed == 14) step.k = (count + 19) / 20;
    for (float& x : step.gradient) x *= scale;
    const SelectOutcome got = body(step, bound);
    expect_equal(got, select_by_reference(step));
    EXPECT_EQ(bound.k, step.k);
    residual = got.residual;
  }
}

}  // namespace winnow::tests
