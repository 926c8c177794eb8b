// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kernels/feedback.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/around.hpp"
#include "tests/kernels/cases/select_cases.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {

// Cases of feedback_add and feedback_keep for bodies at any place, or on the model of a device.

/// A body writes the first of the two spans.
using FeedbackBody = std::function<void(std::span<float>, std::span<const float>, float decay)>;
enum class FeedbackKind { add, keep };

inline FeedbackBody feedback_at(const Exec& exec, FeedbackKind kind) {
  return [exec, kind](std::span<float> into, std::span<const float> from, float decay) {
    if (kind == FeedbackKind::add) {
      kernels::feedback_add(exec, into, from, decay);
    } else {
      kernels::feedback_keep(exec, into, from, decay, {});
    }
  };
}

/// `into` begins `into_offset` elements past its first possible start, and `from` begins
/// `from_offset` elements past its own.
struct FeedbackCase {
  std::size_t count, into_offset, from_offset;
  Input into, from;
  float decay;
};

/// A body must leave the elements before and after the span that it writes as they are.
inline void expect_feedback_equals_reference(const FeedbackCase& c, FeedbackKind kind,
                                             const FeedbackBody& body) {
  SCOPED_TRACE(testing::Message() << c.count << " elements, +" << c.into_offset << " and +"
                                  << c.from_offset << ", " << c.into << " and " << c.from
                                  << ", decay " << c.decay);
  std::vector<float> got = make_input(c.into, c.count + c.into_offset + 2 * kAround, 1);
  const std::vector<float> from = make_input(c.from, c.count + c.from_offset, 2);
  std::vector<float> expected = got;
  const auto span_of = [&c](std::vector<float>& all) {
    return std::span(all).subspan(kAround + c.into_offset, c.count);
  };
  body(span_of(got), std::span(from).subspan(c.from_offset), c.decay);
  feedback_at({.place = lab::kReference}, kind)(span_of(expected),
                                                std::span(from).subspan(c.from_offset), c.decay);
  EXPECT_TRUE(same_bits_or_nan(got, expected));
}

using KeepBody = std::function<void(std::span<float> residual, const ConstElements& gradient,
                                    float decay, const kernels::Precondition&)>;

inline KeepBody keep_at(const Exec& exec) {
  return [exec](std::span<float> residual, const ConstElements& gradient, float decay,
                const kernels::Precondition& precondition) {
    kernels::feedback_keep(exec, residual, gradient, decay, precondition);
  };
}

/// Of gradients of each type, with each precondition.
inline void expect_keep_equals_reference(const KeepBody& body) {
  for (const Input input : {Input::normal, Input::not_finite}) {
    for (const SelectStep& wide : preconditioned_steps(input, 5001)) {
      for (const ElementType type : {ElementType::float32, ElementType::bf16, ElementType::fp16}) {
        const auto keep = [&](const KeepBody& by) {
          SelectOutcome kept(type == ElementType::float32 ? wide : as_halves(type, wide));
          by(kept.residual, gradient_of(type, kept.gradient, kept.halves), 0.9F,
             wide.precondition_by(kept.moment));
          return kept;
        };
        const SelectOutcome got = keep(body), expected = keep(keep_at({.place = lab::kReference}));
        EXPECT_TRUE(same_bits_or_nan(got.residual, expected.residual));
        EXPECT_TRUE(same_bits_or_nan(got.moment, expected.moment));
      }
    }
  }
}

inline void expect_feedback_equals_reference(FeedbackKind kind, const FeedbackBody& body) {
  for (const std::size_t count : {0U, 1U, 3U, 4U, 5U, 31U, 33U, 4095U, 4097U}) {
    for (std::size_t into = 0; into < 4; ++into) {
      for (std::size_t from = 0; from < 4; ++from) {
        expect_feedback_equals_reference({count, into, from, Input::normal, Input::cauchy, 0.9F},
                                         kind, body);
      }
    }
  }
  for (const Input from : {Input::denormal, Input::not_finite, Input::mostly_not_finite}) {
    for (const Input into : {Input::denormal, Input::all_zero, Input::normal}) {
      for (const float decay : {1.0F, 0.9F, 0.0F}) {
        expect_feedback_equals_reference({5001, 0, 0, into, from, decay}, kind, body);
        expect_feedback_equals_reference({5001, 1, 2, from, into, decay}, kind, body);
      }
    }
  }
}

}  // namespace winnow::tests
