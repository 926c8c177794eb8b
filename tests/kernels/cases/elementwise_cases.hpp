// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/arithmetic/half.hpp"
#include "kernels/arithmetic/reduce.hpp"
#include "kernels/arithmetic/with_type.hpp"
#include "kernels/checksum.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/half.hpp"
#include "kernels/reduce.hpp"
#include "kernels/take.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/answers.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/supports.hpp"

namespace winnow::tests {

// Cases of operations on each element, or on each entry of a list, for bodies that run on a device
// or on the model of one. A body must leave what the reference leaves.

inline const Exec kByReference{.place = lab::kReference};
inline constexpr std::size_t kElementCounts[] = {0, 1, 3, 4, 5, 31, 33, 4095, 4097};

/// Numbers that begin `offset` elements past a multiple of 16 bytes.
template <class T>
class Shifted {
 public:
  Shifted(std::vector<T> numbers, std::size_t offset)
      : memory_(std::move(numbers)), offset_(offset) {
    memory_.insert(memory_.begin(), offset, T{});
  }
  std::span<T> span() { return std::span(memory_).subspan(offset_); }

 private:
  std::vector<T> memory_;
  std::size_t offset_;
};

using ScaleBody = std::function<void(std::span<float>, float)>;
using FiniteBody = std::function<bool(std::span<const float>)>;
/// weights, residual, share, ahead
using LookAheadBody =
    std::function<void(std::span<const float>, std::span<const float>, float, std::span<float>)>;

inline void expect_scale_equals_reference(const ScaleBody& body) {
  for (const std::size_t count : kElementCounts) {
    for (std::size_t offset = 0; offset < 4; ++offset) {
      for (const Input input : {Input::normal, Input::denormal, Input::not_finite}) {
        SCOPED_TRACE(testing::Message() << count << " elements, +" << offset << ", " << input);
        Shifted<float> got(make_input(input, count, 3), offset);
        std::vector<float> expected = make_input(input, count, 3);
        body(got.span(), 1.0F / 3);
        kernels::scale(kByReference, expected, 1.0F / 3);
        EXPECT_TRUE(same_bits_or_nan(got.span(), expected));
      }
    }
  }
}

/// Out of place, from and to other alignments, and in place.
inline void expect_look_ahead_equals_reference(const LookAheadBody& body) {
  for (const std::size_t count : kElementCounts) {
    for (std::size_t offset = 0; offset < 4; ++offset) {
      for (const Input input : {Input::normal, Input::denormal, Input::cauchy}) {
        SCOPED_TRACE(testing::Message() << count << " elements, +" << offset << ", " << input);
        Shifted<float> weights(make_input(Input::normal, count, 5), offset);
        Shifted<float> residual(make_input(input, count, 6), (offset + 1) % 4);
        Shifted<float> ahead(std::vector<float>(count), (offset + 2) % 4);
        std::vector<float> expected(count);
        kernels::look_ahead(kByReference, weights.span(), residual.span(), 2.5F / 3, expected);
        body(weights.span(), residual.span(), 2.5F / 3, ahead.span());
        EXPECT_TRUE(same_bits(ahead.span(), expected));
        body(weights.span(), residual.span(), 2.5F / 3, weights.span());
        EXPECT_TRUE(same_bits(weights.span(), expected)) << "in place";
      }
    }
  }
}

struct MomentBody {
  std::function<void(std::span<float>, std::span<float>, const kernels::SecondMomentStep&)> divide;
  std::function<void(std::span<float>, std::span<float>, std::span<const float>,
                     const kernels::MomentumStep&)>
      correct;
};

/// Calls expect_same(count, offset, input, got, expected) with gradients, of which one has an
/// infinite square.
template <class ExpectSame>
void for_each_gradient(const ExpectSame& expect_same) {
  for (const std::size_t count : kElementCounts) {
    for (std::size_t offset = 0; offset < 4; ++offset) {
      for (const Input input : {Input::normal, Input::denormal, Input::not_finite}) {
        SCOPED_TRACE(testing::Message() << count << " elements, +" << offset << ", " << input);
        std::vector<float> expected = make_input(input, count, 5);
        if (count > 2) expected[count / 2] = 1e30F;
        Shifted<float> got(expected, offset);
        expect_same(offset, got.span(), expected);
      }
    }
  }
}

inline void expect_divide_by_moment_equals_reference(const MomentBody& body) {
  constexpr kernels::SecondMomentStep kStep{
      .decay = 0.75F, .weight = 0.25F, .correction = 1.5F, .floor = 1e-8F, .rate = 0.3F};
  for_each_gradient([&](std::size_t offset, std::span<float> got, std::vector<float>& expected) {
    Shifted<float> moment(std::vector<float>(got.size()), (offset + 1) % 4);
    std::vector<float> second(got.size());
    for (int step = 0; step < 2; ++step) {
      body.divide(got, moment.span(), kStep);
      kernels::divide_by_moment(kByReference, expected, second, kStep);
      EXPECT_TRUE(same_bits_or_nan(got, expected));
      EXPECT_TRUE(same_bits(moment.span(), second));
    }
  });
}

/// With residuals of which every third is zero, and without.
inline void expect_correct_momentum_equals_reference(const MomentBody& body) {
  constexpr kernels::MomentumStep kStep{.momentum = 0.75F, .rate = 0.3F};
  for_each_gradient([&](std::size_t offset, std::span<float> got, std::vector<float>& expected) {
    Shifted<float> moment(make_input(Input::normal, got.size(), 8), (offset + 1) % 4);
    Shifted<float> residual(make_input(Input::normal, got.size(), 9), (offset + 2) % 4);
    std::vector<float> velocity = make_input(Input::normal, got.size(), 8);
    for (std::size_t i = 0; i < got.size(); i += 3) residual.span()[i] = i % 2 == 0 ? 0.0F : -0.0F;
    for (const std::span<float> missing : {residual.span(), std::span<float>()}) {
      body.correct(got, moment.span(), missing, kStep);
      kernels::correct_momentum(kByReference, expected, velocity, missing, kStep);
      EXPECT_TRUE(same_bits_or_nan(got, expected));
      EXPECT_TRUE(same_bits(moment.span(), velocity));
    }
  });
}

/// One element is not finite; the case tries several places for it.
inline void expect_all_finite_equals_reference(const FiniteBody& body) {
  for (const std::size_t count : kElementCounts) {
    for (std::size_t offset = 0; offset < 4; ++offset) {
      SCOPED_TRACE(testing::Message() << count << " elements, +" << offset);
      Shifted<float> elements(make_input(Input::cauchy, count, 4), offset);
      EXPECT_TRUE(body(elements.span()));
      for (std::size_t at = 0; at < count; at += count / 7 + 1) {
        for (const float wrong :
             {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
          const float was = std::exchange(elements.span()[at], wrong);
          EXPECT_FALSE(body(elements.span())) << at;
          elements.span()[at] = was;
        }
      }
    }
  }
}

struct HalfBody {
  std::function<void(ElementType, std::span<const std::uint16_t>, std::span<float>)> widen;
  std::function<void(ElementType, std::span<const float>, std::span<std::uint16_t>)> narrow;
  std::function<bool(const kernels::RestJob&)> keep_rest;  ///< whether some sum is too large
};

/// All 16-bit numbers, and a few of them at all ends and alignments.
inline void expect_widen_equals_reference(const HalfBody& body) {
  std::vector<std::uint16_t> all(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    for (const std::size_t count : {std::size_t{65536}, std::size_t{0}, std::size_t{7}}) {
      for (std::size_t offset = 0; offset < 4; ++offset) {
        if (count == all.size() && offset > 0) continue;
        SCOPED_TRACE(testing::Message() << count << " elements, +" << offset);
        Shifted<std::uint16_t> in({all.end() - static_cast<std::ptrdiff_t>(count), all.end()},
                                  offset);
        std::vector<float> got(count), expected(count);
        body.widen(type, in.span(), got);
        kernels::widen(kByReference, type, in.span(), expected);
        EXPECT_TRUE(same_bits_or_nan(got, expected));
      }
    }
  }
}

/// 16-bit numbers, the float32 numbers about them, and random bits.
inline void expect_narrow_equals_reference(const HalfBody& body) {
  std::mt19937 random(5);
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    std::vector<float> numbers;
    for (std::uint32_t half = 0; half < 65536; half += 7) {
      const auto bits = std::bit_cast<std::uint32_t>(
          type == ElementType::bf16 ? kernels::widen_bf16(static_cast<std::uint16_t>(half))
                                    : kernels::widen_fp16(static_cast<std::uint16_t>(half)));
      for (const std::uint32_t past : {0U, 0xfffU, 0x1000U, 0x7fffU, 0x8000U, 0x8001U}) {
        numbers.push_back(std::bit_cast<float>(bits + past));
      }
      numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    }
    for (const std::size_t count : {numbers.size(), std::size_t{0}, std::size_t{7}}) {
      for (std::size_t offset = 0; offset < 4; ++offset) {
        if (count == numbers.size() && offset > 0) continue;
        SCOPED_TRACE(testing::Message() << count << " elements, +" << offset);
        const std::span<const float> in = std::span(numbers).last(count);
        Shifted<std::uint16_t> got(std::vector<std::uint16_t>(count), offset);
        std::vector<std::uint16_t> expected(count);
        body.narrow(type, in, got.span());
        kernels::narrow(kByReference, type, in, expected);
        EXPECT_TRUE(std::ranges::equal(got.span(), expected));
      }
    }
  }
}

/// Numbers on both sides of the largest number that fits and beyond, at either end.
inline void expect_keep_rest_equals_reference(const HalfBody& body) {
  constexpr std::uint64_t kBase = 100;
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    const float overflow = kernels::overflow_of(type);
    for (const float x :
         {std::nextafter(overflow, 0.0F), overflow, -overflow, 3.4e38F, -1e30F,
          std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const std::size_t count : {0U, 1U, 6U, 4097U, 9000U}) {
        for (const std::size_t at : {std::size_t{0}, count - 1}) {
          for (const kernels::RestKeeper& keeper :
               {kernels::RestKeeper{}, kernels::RestKeeper{{3, 10'000}, 1, 3},
                kernels::RestKeeper::nobody()}) {
            SCOPED_TRACE(testing::Message() << x << " at " << at << " of " << count);
            std::vector<float> sums = make_input(Input::normal, count, 6);
            for (std::size_t i = at; i < count; i += 1000) sums[i] = x;
            std::vector<float> residual = make_input(Input::normal, count, 7);
            std::vector<float> expected_sums = sums, expected = residual;
            std::uint32_t too_large = 0;
            kernels::keep_rest(kByReference, {.type = type,
                                              .sums = expected_sums,
                                              .residual = expected,
                                              .base = kBase,
                                              .keeper = keeper,
                                              .too_large = &too_large});
            EXPECT_EQ(body.keep_rest({.type = type,
                                      .sums = sums,
                                      .residual = residual,
                                      .base = kBase,
                                      .keeper = keeper,
                                      .too_large = nullptr}),
                      too_large != 0);
            EXPECT_TRUE(same_bits_or_nan(sums, expected_sums));
            EXPECT_TRUE(same_bits(residual, expected));
          }
        }
      }
    }
  }
}

struct ReduceBody {
  std::function<void(ReduceOp, const Elements&, const ConstElements&)> reduce;
  std::function<void(const Elements&, int)> average;
};

inline constexpr ElementType kReducible[] = {
    ElementType::float32, ElementType::float64, ElementType::int8,  ElementType::uint8,
    ElementType::int32,   ElementType::uint32,  ElementType::int64, ElementType::uint64};

/// Random integers, or random finite floats: which NaN a sum leaves is undefined.
template <class T>
std::vector<T> any_numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> numbers(count);
  for (T& x : numbers) {
    if constexpr (std::floating_point<T>) {
      x = static_cast<T>(static_cast<double>(static_cast<std::int64_t>(random())) * 0x1p-60);
    } else {
      x = static_cast<T>(random());
    }
  }
  return numbers;
}

inline void expect_reduce_equals_reference(const ReduceBody& body) {
  for (const ElementType type : kReducible) {
    kernels::with_type(type, [&]<class T>(T) {
      for (const std::size_t count : {0U, 1U, 7U, 9U, 1001U}) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
          SCOPED_TRACE(testing::Message() << "type " << static_cast<int>(type) << ", " << count
                                          << " elements, +" << offset);
          const std::vector<T> from = any_numbers<T>(count, 1), into = any_numbers<T>(count, 2);
          const auto equal = [](std::span<const T> a, std::span<const T> b) {
            return a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
          };
          for (const ReduceOp op :
               {ReduceOp::sum, ReduceOp::minimum, ReduceOp::maximum, ReduceOp::product}) {
            Shifted<T> got(into, offset);
            std::vector<T> expected = into;
            body.reduce(op, got.span(), from);
            kernels::reduce(kByReference, op, expected, from);
            EXPECT_TRUE(equal(got.span(), expected)) << "operation " << static_cast<int>(op);
          }
          Shifted<T> got(into, offset);
          std::vector<T> expected = into;
          body.average(got.span(), 3);
          kernels::average(kByReference, expected, 3);
          EXPECT_TRUE(equal(got.span(), expected));
        }
      }
    });
  }
}

/// `to` takes floats; `from` takes what `to` makes of them.
struct OrderedBody {
  std::function<void(const Elements&, ReduceOp)> to;
  std::function<void(const Elements&)> from;
};

template <std::floating_point T>
void expect_ordered_equals_arithmetic(const OrderedBody& body, std::vector<T> numbers,
                                      std::size_t offset, ReduceOp op) {
  Shifted<T> got(numbers, offset);
  std::vector<kernels::BitsOf<T>> expected;
  for (const T x : numbers) expected.push_back(kernels::ordered_of(x, op));
  const auto is_expected = [&] {
    return numbers.empty() ||
           std::memcmp(got.span().data(), expected.data(), got.span().size_bytes()) == 0;
  };
  body.to(got.span(), op);
  EXPECT_TRUE(is_expected());
  for (auto& bits : expected) {
    bits = std::bit_cast<kernels::BitsOf<T>>(kernels::float_of<T>(bits));
  }
  body.from(got.span());
  EXPECT_TRUE(is_expected());
}

/// Converts there and back: any bits, NaNs and zeros of both signs among them.
template <std::floating_point T>
void expect_ordered_equals_arithmetic(const OrderedBody& body) {
  constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
  for (const std::size_t count : {0U, 1U, 7U, 9U, 1001U}) {
    std::vector<T> numbers = {kNaN, -T{0}, T{0}, -kNaN};
    numbers.resize(count);
    std::mt19937_64 random(3);
    for (std::size_t i = 4; i < count; ++i) {
      numbers[i] = std::bit_cast<T>(static_cast<kernels::BitsOf<T>>(random()));
    }
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
      for (const ReduceOp op : {ReduceOp::minimum, ReduceOp::maximum}) {
        SCOPED_TRACE(testing::Message() << count << " elements of " << sizeof(T) << " bytes, +"
                                        << offset << ", operation " << static_cast<int>(op));
        expect_ordered_equals_arithmetic(body, numbers, offset, op);
      }
    }
  }
}

inline void expect_ordered_equals_arithmetic(const OrderedBody& body) {
  expect_ordered_equals_arithmetic<float>(body);
  expect_ordered_equals_arithmetic<double>(body);
}

struct TakeBody {
  std::function<void(std::span<float>, std::uint32_t, std::span<const std::uint32_t>,
                     std::span<float>)>
      take;
  std::function<void(std::span<float>, std::uint32_t, const kernels::SparseView&)> put;
};

/// Takes, compares, and puts back.
inline void expect_take_equals_reference(const TakeBody& body) {
  for (const std::uint32_t count : {0U, 1U, 33U, 4097U}) {
    for (const Support support : kSupports) {
      for (const std::uint32_t base : {0U, 4'000'000'000U}) {
        SCOPED_TRACE(testing::Message() << count << " elements from " << base);
        std::vector<std::uint32_t> index = make_support(support, count, 3);
        for (std::uint32_t& i : index) i += base;
        const std::vector<float> before = make_input(Input::not_finite, count, 7);
        std::vector<float> got = before, expected = before;
        std::vector<float> value(index.size()), expected_value(index.size());
        body.take(got, base, index, value);
        kernels::take(kByReference, expected, base, index, expected_value);
        EXPECT_TRUE(same_bits(got, expected));
        EXPECT_TRUE(same_bits(value, expected_value));
        body.put(got, base, {index, value});
        EXPECT_TRUE(same_bits(got, before));
      }
    }
  }
}

}  // namespace winnow::tests
