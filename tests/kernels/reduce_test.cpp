// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/arithmetic/reduce.hpp"
#include "lab/reference/place.hpp"

namespace winnow::tests {
namespace {

using kernels::average_of;
using kernels::float_of;
using kernels::maximum_of;
using kernels::minimum_of;
using kernels::ordered_of;
using kernels::product_of;
using kernels::sum_of;

template <class T>
class OfFloats : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(OfFloats, Floats);

TYPED_TEST(OfFloats, MinimumAndMaximumKnowZerosAndPassNaN) {
  using T = TypeParam;
  constexpr T kNaN = std::numeric_limits<T>::quiet_NaN(),
              kMost = std::numeric_limits<T>::infinity();
  EXPECT_EQ(minimum_of(T{1}, T{2}), T{1});
  EXPECT_EQ(maximum_of(T{1}, T{2}), T{2});
  EXPECT_EQ(minimum_of(kMost, -kMost), -kMost);
  EXPECT_EQ(maximum_of(-kMost, T{0}), T{0});
  EXPECT_EQ(minimum_of(T{-3}, T{-3}), T{-3});
  EXPECT_EQ(maximum_of(T{-3}, T{-3}), T{-3});
  for (const bool swapped : {false, true}) {
    const T a = swapped ? T{0} : -T{0}, b = -a;
    EXPECT_TRUE(std::signbit(minimum_of(a, b)));
    EXPECT_FALSE(std::signbit(maximum_of(a, b)));
    for (const T nan : {kNaN, -kNaN, std::numeric_limits<T>::signaling_NaN()}) {
      for (const T other : {T{1}, -kMost, nan}) {
        const T least = swapped ? minimum_of(nan, other) : minimum_of(other, nan);
        const T most = swapped ? maximum_of(nan, other) : maximum_of(other, nan);
        EXPECT_EQ(std::bit_cast<kernels::BitsOf<T>>(least),
                  std::bit_cast<kernels::BitsOf<T>>(kNaN));
        EXPECT_EQ(std::bit_cast<kernels::BitsOf<T>>(most), std::bit_cast<kernels::BitsOf<T>>(kNaN));
      }
    }
  }
  EXPECT_EQ(average_of(T{10}, 3), T{10} * (T{1} / T{3}));
}

/// Numbers of all kinds, each with its neighbours.
template <class T>
std::vector<T> kinds_of_numbers() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> numbers;
  for (const T x : {T{0}, Limits::denorm_min(), Limits::min(), T{1}, Limits::max(),
                    Limits::infinity(), Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    for (const int step : {-1, 0, 1}) {
      const auto bits = std::bit_cast<kernels::BitsOf<T>>(x);
      if (bits == 0 && step < 0) continue;
      const auto next =
          static_cast<kernels::BitsOf<T>>(bits + static_cast<kernels::BitsOf<T>>(step));
      numbers.push_back(std::bit_cast<T>(next));
      numbers.push_back(std::bit_cast<T>(next | kernels::kSignBit<T>));
    }
  }
  const auto ones = std::bit_cast<T>(~kernels::BitsOf<T>{0});
  numbers.push_back(ones);
  numbers.push_back(-ones);
  return numbers;
}

TYPED_TEST(OfFloats, IntegersStandForThemInMinimumAndMaximum) {
  using T = TypeParam;
  using Bits = kernels::BitsOf<T>;
  const auto bits = [](T x) { return std::bit_cast<Bits>(x); };
  for (const T a : kinds_of_numbers<T>()) {
    for (const T b : kinds_of_numbers<T>()) {
      SCOPED_TRACE(testing::Message() << std::hex << bits(a) << " and " << bits(b));
      const Bits least =
          std::min(ordered_of(a, ReduceOp::minimum), ordered_of(b, ReduceOp::minimum));
      const Bits most =
          std::max(ordered_of(a, ReduceOp::maximum), ordered_of(b, ReduceOp::maximum));
      EXPECT_EQ(bits(float_of<T>(least)), bits(minimum_of(a, b)));
      EXPECT_EQ(bits(float_of<T>(most)), bits(maximum_of(a, b)));
    }
  }
}

template <class T>
class OfIntegers : public testing::Test {};
using Integers = testing::Types<std::int8_t, std::uint8_t, std::int32_t, std::uint32_t,
                                std::int64_t, std::uint64_t>;
TYPED_TEST_SUITE(OfIntegers, Integers);

TYPED_TEST(OfIntegers, SumsAndProductsWrap) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::max(), kLeast = std::numeric_limits<T>::min();
  EXPECT_EQ(sum_of(kMost, T{1}), kLeast);
  EXPECT_EQ(sum_of(kLeast, kMost), std::is_signed_v<T> ? static_cast<T>(-1) : kMost);
  EXPECT_EQ(product_of(kMost, T{2}), static_cast<T>(-2));
  EXPECT_EQ(product_of(T{11}, T{11}), T{121});
  EXPECT_EQ(minimum_of(kLeast, kMost), kLeast);
  EXPECT_EQ(maximum_of(kLeast, kMost), kMost);
}

TYPED_TEST(OfIntegers, AveragesAreCutTowardsZero) {
  using T = TypeParam;
  constexpr T kMost = std::numeric_limits<T>::max();
  EXPECT_EQ(average_of(T{20}, 7), T{2});
  EXPECT_EQ(average_of(kMost, 2), static_cast<T>(kMost / 2));
  EXPECT_EQ(average_of(T{100}, 1000), T{0});
  if constexpr (std::is_signed_v<T>) {
    EXPECT_EQ(average_of(static_cast<T>(-20), 7), T{-2});
  }
}

// The bodies agree at any number of threads: they share the arithmetic, not the loop.
template <class T>
void expect_equal_bodies() {
  for (const std::size_t count : {0U, 1U, 63U, 1000U, 30011U}) {
    std::vector<T> a(count), b(count);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = static_cast<T>(i * 7 % 101);
      b[i] = static_cast<T>(i * 5 % 103);
    }
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::minimum, ReduceOp::maximum, ReduceOp::product}) {
      std::vector<T> expected = a;
      kernels::reduce({.place = lab::kReference}, op, expected, b);
      for (const int threads : {1, 2, 3}) {
        std::vector<T> got = a;
        kernels::reduce({.threads = threads}, op, got, b);
        EXPECT_EQ(got, expected);
      }
      kernels::average({.place = lab::kReference}, expected, 3);
      std::vector<T> got = a;
      kernels::reduce({}, op, got, b);
      kernels::average({.threads = 3}, got, 3);
      EXPECT_EQ(got, expected);
    }
    std::vector<T> sum = a;
    kernels::reduce({}, ReduceOp::sum, sum, b);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(sum[i], static_cast<T>(a[i] + b[i]));
  }
}

TEST(Reduce, EqualsReference) {
  expect_equal_bodies<float>();
  expect_equal_bodies<double>();
  expect_equal_bodies<std::int8_t>();
  expect_equal_bodies<std::uint8_t>();
  expect_equal_bodies<std::int32_t>();
  expect_equal_bodies<std::uint32_t>();
  expect_equal_bodies<std::int64_t>();
  expect_equal_bodies<std::uint64_t>();
}

TEST(Reduce, RefusesWhatHasNoSuchOperation) {
  std::vector<float> floats(3), more(4);
  std::vector<std::int32_t> integers(3);
  std::vector<std::uint16_t> halves(3);
  const Elements bf16(halves.data(), halves.size(), ElementType::bf16);
  EXPECT_THROW(kernels::reduce({}, ReduceOp::sum, floats, more), UsageError);
  EXPECT_THROW(kernels::reduce({}, ReduceOp::sum, floats, integers), UsageError);
  EXPECT_THROW(kernels::reduce({}, ReduceOp::average, floats, floats), UsageError);
  EXPECT_THROW(kernels::reduce({}, ReduceOp::sum, bf16, bf16), UsageError);
  EXPECT_THROW(kernels::average({}, bf16, 2), UsageError);
}

}  // namespace
}  // namespace winnow::tests
