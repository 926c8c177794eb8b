// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/put_back.hpp"
#include "tests/kernels/float_modes.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/supports.hpp"

// The cpu body gives the reference's bits for any number of threads, at awkward sizes and supports.

namespace winnow::kernels {
namespace {

using namespace tests;

constexpr Exec kReference{.place = Place::reference};

struct Lists {
  std::vector<std::vector<std::uint32_t>> index;
  std::vector<std::vector<float>> value;
  std::vector<SparseView> views() const {
    std::vector<SparseView> views;
    for (std::size_t p = 0; p < index.size(); ++p) views.push_back({index[p], value[p]});
    return views;
  }
};

/// Values whose sums round, so that another order of addition gives other bits; denormals and
/// negative zeros among them.
float awkward_value(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return -0.0f;
    case 1:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7fffff));
    case 2:
      return 1e8f;
    case 3:
      return -1e8f;
    default:
      return static_cast<float>(random()) / 3e9f - 0.7f;
  }
}

Lists make_lists(std::size_t number, Support support, std::uint32_t count, std::uint32_t base) {
  Lists lists;
  for (std::uint32_t p = 0; p < number; ++p) {
    std::mt19937 random(p + 77);
    auto index = make_support(support, count, p);
    std::vector<float> value(index.size());
    for (float& v : value) v = awkward_value(random);
    for (std::uint32_t& i : index) i += base;
    lists.index.push_back(std::move(index));
    lists.value.push_back(std::move(value));
  }
  return lists;
}

/// ordered_sum of lists to a sum of zeros. Returns whether all sums are finite.
bool add_to(const Exec& exec, std::span<float> sum, std::uint32_t base,
            std::span<const SparseView> lists, float factor) {
  std::vector<Term> terms;
  for (const SparseView& list : lists) terms.push_back({.index = list.index, .value = list.value});
  std::uint32_t not_finite = 0;
  ordered_sum(exec, {.terms = {terms},
                     .begin = base,
                     .sum = sum,
                     .factor = factor,
                     .not_finite = &not_finite,
                     .sum_is_zero = true});
  return not_finite == 0;
}

std::vector<float> start_values(std::uint32_t count) {
  std::mt19937 random(5);
  std::vector<float> sum(count);
  for (float& s : sum) s = awkward_value(random);
  return sum;
}

TEST(OrderedSumOfLists, EqualsReference) {
  for (const std::uint32_t count : kSupportCounts) {
    for (const Support support : kSupports) {
      for (const std::size_t number : {1u, 2u, 4u, 7u}) {
        // Seven dense lists of a million take seconds and no path that two do not.
        if (support == Support::dense && count > 1000000 && number > 2) continue;
        SCOPED_TRACE(describe(support, count) + ", lists " + std::to_string(number));
        const std::uint32_t base = count % 2 == 0 ? 0 : 4000000000u;
        const Lists lists = make_lists(number, support, count, base);
        for (const float factor : {1.0f, 1.0f / 3}) {
          std::vector<float> expected(count);
          const bool finite = add_to(kReference, expected, base, lists.views(), factor);
          for (const int threads : {1, 2, 3}) {
            std::vector<float> sum(count);
            EXPECT_EQ(add_to(Exec{.threads = threads}, sum, base, lists.views(), factor), finite);
            EXPECT_TRUE(same_bits(sum, expected)) << "threads " << threads;
          }
        }
      }
    }
  }
}

// More lists than a tile remembers the stretches of.
TEST(OrderedSumOfLists, EqualsReferenceForManyLists) {
  const std::uint32_t count = (1 << 17) + 5;
  const Lists lists = make_lists(70, Support::random, count, 9);
  std::vector<float> expected(count), sum(count);
  EXPECT_TRUE(add_to(kReference, expected, 9, lists.views(), 0.1f));
  EXPECT_TRUE(add_to(Exec{.threads = 2}, sum, 9, lists.views(), 0.1f));
  EXPECT_TRUE(same_bits(sum, expected));
}

// The formula of the declaration, element by element, without the reference body.
TEST(OrderedSumOfLists, IsTheDeclaredFormula) {
  for (const Place place : {Place::reference, Place::cpu}) {
    const std::uint32_t count = 40000;
    const Lists lists = make_lists(4, Support::random, count, 0);
    std::vector<float> sum(count);
    auto expected = sum;
    add_to(Exec{.place = place}, sum, 0, lists.views(), 0.25f);
    for (std::uint32_t i = 0; i < count; ++i) {
      bool carried = false;
      for (std::size_t p = 0; p < 4; ++p) {
        const auto at = std::lower_bound(lists.index[p].begin(), lists.index[p].end(), i);
        if (at == lists.index[p].end() || *at != i) continue;
        expected[i] += lists.value[p][static_cast<std::size_t>(at - lists.index[p].begin())];
        carried = true;
      }
      if (carried) expected[i] *= 0.25f;
    }
    EXPECT_TRUE(same_bits(sum, expected));
  }
}

// Each position is a power of two times its rank's number: every sum has a closed form.
TEST(OrderedSumOfLists, HasClosedForm) {
  const std::uint32_t count = 5000;
  for (const std::uint32_t ranks : {1u, 2u, 4u, 7u}) {
    Lists lists;
    for (std::uint32_t p = 0; p < ranks; ++p) {
      lists.index.emplace_back();
      lists.value.emplace_back();
      for (std::uint32_t i = p; i < count; i += p + 1) {
        lists.index[p].push_back(i);
        lists.value[p].push_back(static_cast<float>(i * (p + 1)));
      }
    }
    std::vector<float> sum(count);
    EXPECT_TRUE(add_to(Exec{.threads = 2}, sum, 0, lists.views(), 0.5f));
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t weight = 0;
      for (std::uint32_t p = 0; p < ranks; ++p) {
        weight += i >= p && (i - p) % (p + 1) == 0 ? p + 1 : 0;
      }
      ASSERT_EQ(sum[i], static_cast<float>(i * weight) / 2) << i;
    }
  }
}

TEST(OrderedSumOfLists, SaysWhetherSumsAreFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMax = std::numeric_limits<float>::max();
  struct Case {
    float start, value;
    float factor;
    bool finite;
  };
  const Case cases[] = {{0, kInf, 1, false},       {0, -kInf, 1, false},   {0, kNan, 1, false},
                        {kMax, kMax, 1, false},    {kInf, 1, 1, false},    {kInf, -kInf, 1, false},
                        {kMax, 0, 1, true},        {-kMax, kMax, 1, true}, {kMax, 0, 2, false},
                        {kMax, kMax, 0.5f, false}, {0, kInf, 0, false},    {1, 1, 0, true}};
  const std::uint32_t count = 70000;
  for (const Case& c : cases) {
    for (const std::size_t number : {1u, 2u}) {
      for (const std::uint32_t place : {0u, 40000u, count - 1}) {
        for (const Place body : {Place::reference, Place::cpu}) {
          SCOPED_TRACE(testing::Message() << c.start << " + " << c.value << ", times " << c.factor
                                          << " at " << place << ", lists " << number);
          std::vector<float> sum(count);
          Lists lists = make_lists(number, Support::dense, count, 0);
          for (auto& value : lists.value) std::fill(value.begin(), value.end(), 0.0f);
          lists.value[0][place] = c.start;
          lists.value[number - 1][place] += c.value;
          const Exec exec{.place = body, .threads = 3};
          EXPECT_EQ(add_to(exec, sum, 0, lists.views(), c.factor), c.finite);
        }
      }
    }
  }
}

TEST(PutBack, EqualsReference) {
  for (const std::uint32_t count : kSupportCounts) {
    for (const Support support : kSupports) {
      SCOPED_TRACE(describe(support, count));
      const Lists lists = make_lists(1, support, count, 1000);
      auto expected = start_values(count);
      put_back(kReference, expected, 1000, lists.views()[0]);
      for (const int threads : {1, 2, 3}) {
        auto sum = start_values(count);
        put_back(Exec{.threads = threads}, sum, 1000, lists.views()[0]);
        EXPECT_TRUE(same_bits(sum, expected)) << "threads " << threads;
      }
    }
  }
}

TEST(OrderedSumOfLists, KeepsDenormalsAndTheCallersMode) {
  const std::uint32_t count = 40000;
  const float denormal = std::numeric_limits<float>::denorm_min();
  for (const Place place : {Place::reference, Place::cpu}) {
    for (const int threads : {1, 2}) {
      Lists lists = make_lists(2, Support::dense, count, 0);
      for (auto& value : lists.value) std::fill(value.begin(), value.end(), denormal);
      std::vector<float> sum(count);
      {
        const FlushToZero mode;
        const std::uint32_t before = FlushToZero::read();
        add_to(Exec{.place = place, .threads = threads}, sum, 0, lists.views(), 1);
        EXPECT_EQ(FlushToZero::read(), before);
      }
      EXPECT_EQ(std::count(sum.begin(), sum.end(), 2 * denormal), count);
    }
  }
}

}  // namespace
}  // namespace winnow::kernels
