// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>
#include <winnow/error.hpp>

#include "lab/reference/place.hpp"
#include "tests/kernels/cases/feedback_cases.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
const Place kHostPlaces[] = {lab::kReference, Place::host};

TEST(Feedback, EqualsReferenceOnEveryTarget) {
  for_each_target([] {
    for (const FeedbackKind kind : {FeedbackKind::add, FeedbackKind::keep}) {
      for (const int threads : {1, 2, 3}) {
        const FeedbackBody body = feedback_at({.threads = threads}, kind);
        expect_feedback_equals_reference(kind, body);
        expect_feedback_equals_reference({kLargeSize, 0, 0, Input::normal, Input::not_finite, 0.9F},
                                         kind, body);
      }
    }
  });
}

TEST(Feedback, KeepOfAnyGradientEqualsReference) {
  for (const int threads : {1, 3}) expect_keep_equals_reference(keep_at({.threads = threads}));
}

TEST(Feedback, AddIsTwoRoundings) {
  // decay * residual is 1 + 2^-22 and a bit, which is lost before the addition meets its tie;
  // fused, the bit would raise the sum.
  for (const Place place : kHostPlaces) {
    std::vector<float> elements(40, 0x1p-24F);
    const std::vector<float> residual(40, 1 + 0x1p-23F);
    kernels::feedback_add({.place = place}, elements, residual, 1 + 0x1p-23F);
    EXPECT_EQ(elements, std::vector<float>(40, 1 + 0x1p-22F));
  }
}

TEST(Feedback, KeepLeavesTheOldResidualWhereTheSumIsNotFinite) {
  for (const Place place : kHostPlaces) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{17}, std::size_t{34}}) {
      for (const float wrong : {kNan, -std::numeric_limits<float>::infinity(), kLargest}) {
        std::vector<float> residual(35, 2), gradient(35, -1), expected(35, 1);
        gradient[at] = wrong;
        residual[at] = expected[at] = kLargest;
        kernels::feedback_keep({.place = place}, residual, gradient, 1, {});
        EXPECT_EQ(residual, expected) << wrong << " at " << at;
      }
    }
  }
}

TEST(Feedback, RefusesUnequalSizes) {
  std::vector<float> three(3), four(4);
  EXPECT_THROW(kernels::feedback_add({}, three, four, 1), UsageError);
  EXPECT_THROW(kernels::feedback_keep({}, three, four, 1, {}), UsageError);
}

}  // namespace
}  // namespace winnow::tests
