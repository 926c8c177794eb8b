// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>
#include <winnow/error.hpp>

#include "kernels/residual_add.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/answers.hpp"
#include "tests/kernels/cases/elementwise_cases.hpp"
#include "tests/kernels/float_modes.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

const Exec kReference{.place = lab::kReference};

template <class Body>
void for_each_size(const Body& body) {
  body(std::size_t{0});
  for (const std::size_t count : kSizes) body(count);
  body(kLargeSize);
}

TEST(ResidualAdd, EqualsReferenceOnEveryTarget) {
  for (const Input input : {Input::normal, Input::cauchy, Input::denormal, Input::not_finite}) {
    SCOPED_TRACE(input);
    for_each_size([&](std::size_t count) {
      const std::vector<float> gradient = make_input(input, count, 1);
      const std::vector<float> before = make_input(Input::normal, count, 2);
      std::vector<float> expected = before;
      kernels::residual_add(kReference, expected, gradient);
      for_each_target([&] {
        for (const int threads : {1, 2, 3}) {
          std::vector<float> residual = before;
          kernels::residual_add({.threads = threads}, residual, gradient);
          EXPECT_TRUE(same_bits(residual, expected)) << count << " elements";
        }
      });
    });
  }
}

TEST(ResidualAdd, RefusesUnequalSizes) {
  std::vector<float> residual(3), gradient(4);
  EXPECT_THROW(kernels::residual_add({}, residual, gradient), UsageError);
}

TEST(Scale, EqualsReferenceOnEveryTarget) {
  for (const Input input : {Input::normal, Input::denormal, Input::not_finite}) {
    SCOPED_TRACE(input);
    for_each_size([&](std::size_t count) {
      const std::vector<float> before = make_input(input, count, 3);
      std::vector<float> expected = before;
      kernels::scale(kReference, expected, 1.0f / 3);
      for_each_target([&] {
        for (const int threads : {1, 2, 3}) {
          std::vector<float> elements = before;
          kernels::scale({.threads = threads}, elements, 1.0f / 3);
          EXPECT_TRUE(same_bits(elements, expected)) << count << " elements";
        }
      });
    });
  }
}

TEST(LookAhead, EqualsReferenceOnEveryTarget) {
  for (const Input input : {Input::normal, Input::cauchy, Input::denormal}) {
    SCOPED_TRACE(input);
    for_each_size([&](std::size_t count) {
      const std::vector<float> weights = make_input(Input::normal, count, 5);
      const std::vector<float> residual = make_input(input, count, 6);
      std::vector<float> expected(count);
      kernels::look_ahead(kReference, weights, residual, 2.5f / 3, expected);
      for_each_target([&] {
        for (const int threads : {1, 2, 3}) {
          std::vector<float> ahead(count), in_place = weights;
          kernels::look_ahead({.threads = threads}, weights, residual, 2.5f / 3, ahead);
          EXPECT_TRUE(same_bits(ahead, expected)) << count << " elements";
          kernels::look_ahead({.threads = threads}, in_place, residual, 2.5f / 3, in_place);
          EXPECT_TRUE(same_bits(in_place, expected)) << count << " elements in place";
        }
      });
    });
  }
}

// A result too long for the caches takes other stores, which need aligned memory.
TEST(LookAhead, OfMuchEqualsReferenceAtAnyAlignment) {
  constexpr std::size_t kCount = (std::size_t{1} << 22) + 37;
  const std::vector<float> weights = make_input(Input::normal, kCount, 5);
  const std::vector<float> residual = make_input(Input::normal, kCount, 6);
  std::vector<float> expected(kCount), ahead(kCount + 17);
  kernels::look_ahead(kReference, weights, residual, 2.5f / 3, expected);
  for_each_target([&] {
    for (const std::size_t offset : {0U, 1U, 15U}) {
      std::ranges::fill(ahead, 7.0f);
      const auto result = std::span(ahead).subspan(offset, kCount);
      kernels::look_ahead({.threads = 1}, weights, residual, 2.5f / 3, result);
      EXPECT_TRUE(same_bits(result, expected)) << "+" << offset;
      std::ranges::fill(result, 7.0f);
      EXPECT_EQ(ahead, std::vector<float>(ahead.size(), 7.0f)) << "beside the result, +" << offset;
    }
  });
}

// A fused multiply-add would leave -2^-46 where the two roundings leave 0.
TEST(LookAhead, RoundsTheShareOfTheResidualAndThenTheDifference) {
  const std::vector<float> weights = {3, -1, 1 + 0x1p-22f}, residual = {0.5f, 2, 1 + 0x1p-23f};
  for (const Place place : {lab::kReference, Place::host}) {
    std::vector<float> ahead(3);
    kernels::look_ahead({.place = place}, weights, residual, 2, ahead);
    EXPECT_EQ(ahead, (std::vector<float>{2, -5, -1}));
    kernels::look_ahead({.place = place}, weights, residual, 1 + 0x1p-23f, ahead);
    EXPECT_EQ(ahead[2], 0);
  }
}

TEST(LookAhead, RefusesUnequalSizes) {
  std::vector<float> three(3), four(4);
  EXPECT_THROW(kernels::look_ahead({}, three, four, 1, three), UsageError);
  EXPECT_THROW(kernels::look_ahead({}, four, three, 1, three), UsageError);
  EXPECT_THROW(kernels::look_ahead({}, three, three, 1, four), UsageError);
}

TEST(Moments, EqualReferenceOnEveryTarget) {
  for_each_target([] {
    for (const int threads : {1, 3}) {
      const Exec exec{.threads = threads};
      const MomentBody body{[&](std::span<float> gradient, std::span<float> moment,
                                const kernels::SecondMomentStep& by) {
                              kernels::divide_by_moment(exec, gradient, moment, by);
                            },
                            [&](std::span<float> gradient, std::span<float> moment,
                                std::span<const float> residual, const kernels::MomentumStep& by) {
                              kernels::correct_momentum(exec, gradient, moment, residual, by);
                            }};
      expect_divide_by_moment_equals_reference(body);
      expect_correct_momentum_equals_reference(body);
    }
  });
}

// By hand: with moments of 3/4 and 1/4, 8 gives 16, then 28; what is not finite changes no moment.
TEST(Moments, ARootDividesTheGradient) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const kernels::SecondMomentStep by{
      .decay = 0.75f, .weight = 0.25f, .correction = 4, .floor = 2, .rate = 0.5f};
  std::vector<float> gradient = {8, 0, -8, kInfinity, 1e30f}, moment(5);
  kernels::divide_by_moment({}, gradient, moment, by);
  EXPECT_EQ(moment, (std::vector<float>{16, 0, 16, 0, 0}));
  EXPECT_EQ(gradient, (std::vector<float>{0.4f, 0, -0.4f, kInfinity, kInfinity}));
  gradient = {8, 0, 0, -1, 2};
  kernels::divide_by_moment({}, gradient, moment, by);
  EXPECT_EQ(moment, (std::vector<float>{28, 0, 12, 0.25f, 1}));
  EXPECT_EQ(gradient[1], 0);
  EXPECT_EQ(gradient[3], -1 / 3.0f * 0.5f);
  EXPECT_THROW(kernels::divide_by_moment({}, gradient, std::span(moment).first(4), by), UsageError);
}

TEST(Moments, MomentumBeginsAnewWhereNothingWaits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const kernels::MomentumStep by{.momentum = 0.5f, .rate = 2};
  const std::vector<float> residual = {0, 1, -0.0f, -1};
  std::vector<float> gradient = {1, 1, 1, -kInfinity}, moment = {4, 4, 4, 4};
  kernels::correct_momentum({}, gradient, moment, residual, by);
  EXPECT_EQ(moment, (std::vector<float>{1, 3, 1, 4}));
  EXPECT_EQ(gradient, (std::vector<float>{2, 6, 2, -kInfinity}));
  gradient = {0, 0, 0, 0};
  kernels::correct_momentum({}, gradient, moment, {}, by);
  EXPECT_EQ(moment, (std::vector<float>{0.5f, 1.5f, 0.5f, 2}));
  EXPECT_THROW(kernels::correct_momentum({}, gradient, moment, std::span(residual).first(3), by),
               UsageError);
}

TEST(AllFinite, FindsASingleElementAnywhere) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  for_each_size([&](std::size_t count) {
    std::vector<float> elements(count, -std::numeric_limits<float>::max());
    EXPECT_TRUE(is_all_finite(kReference, elements));
    for_each_target([&] {
      for (const int threads : {1, 2, 3}) {
        EXPECT_TRUE(is_all_finite({.threads = threads}, elements));
        for (const float bad : kBad) {
          for (const std::size_t at : {std::size_t{0}, count / 3, count / 2, count - 1}) {
            if (count == 0) continue;
            const float good = std::exchange(elements[at], bad);
            EXPECT_FALSE(is_all_finite({.threads = threads}, elements))
                << bad << " at " << at << " of " << count;
            EXPECT_FALSE(is_all_finite(kReference, elements));
            elements[at] = good;
          }
        }
      }
    });
  });
}

TEST(FloatMode, DenormalsCountAndTheCallersModeComesBack) {
  const std::vector<float> tiny = make_input(Input::denormal, 100000, 4);
  std::vector<float> expected = tiny;
  kernels::residual_add(kReference, expected, tiny);
  ASSERT_NE(bits_of(expected), bits_of(std::vector<float>(tiny.size())));
  for_each_target([&] {
    for (const int threads : {1, 2, 3}) {
      for (const Place place : {Place::host, lab::kReference}) {
        std::vector<float> residual = tiny;
        const FlushToZero flush;
        const auto mode = FlushToZero::read();
        kernels::residual_add({.place = place, .threads = threads}, residual, tiny);
        EXPECT_EQ(FlushToZero::read(), mode);
        EXPECT_EQ(bits_of(residual), bits_of(expected));
      }
    }
  });
}

}  // namespace
}  // namespace winnow::tests
