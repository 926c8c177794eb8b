// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/take.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>
#include <winnow/error.hpp>

#include "lab/reference/place.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/supports.hpp"

// Each element holds its own number, so a read or write at another's place shows.

namespace winnow::kernels {
namespace {

using namespace tests;

const Exec kReference{.place = lab::kReference};

std::vector<float> numbered(std::size_t count, float first) {
  std::vector<float> elements(count);
  for (std::size_t i = 0; i < count; ++i) elements[i] = first + static_cast<float>(i);
  return elements;
}

struct Placed {
  std::vector<std::uint32_t> index;
  std::uint32_t base;
};

/// The support at some base in a part, up to the last possible position.
Placed placed(Support support, std::uint32_t count) {
  Placed at{make_support(support, count, 3), count % 2 == 0 ? 0 : 4000000000U};
  for (std::uint32_t& i : at.index) i += at.base;
  return at;
}

TEST(Take, MovesWhatStandsAtTheSupport) {
  const auto support = placed(Support::random, 40000);
  for (const Place place : {lab::kReference, Place::host}) {
    auto elements = numbered(40000, 1);
    std::vector<float> value(support.index.size());
    take(Exec{.place = place, .threads = 3}, elements, support.base, support.index, value);
    std::size_t j = 0;
    for (std::uint32_t i = 0; i < elements.size(); ++i) {
      const bool taken = j < support.index.size() && support.index[j] == i;
      ASSERT_EQ(elements[i], taken ? 0.0F : static_cast<float>(i + 1)) << i;
      if (taken) {
        ASSERT_EQ(value[j++], static_cast<float>(i + 1)) << i;
      }
    }
    EXPECT_EQ(j, value.size());
  }
}

TEST(Take, EqualsReference) {
  for (const std::uint32_t count : kSupportCounts) {
    for (const Support kind : kSupports) {
      SCOPED_TRACE(describe(kind, count));
      const auto support = placed(kind, count);
      auto expected = numbered(count, 0.5F);
      std::vector<float> expected_value(support.index.size());
      take(kReference, expected, support.base, support.index, expected_value);
      for (const int threads : {1, 2, 3}) {
        auto elements = numbered(count, 0.5F);
        std::vector<float> value(support.index.size());
        take(Exec{.threads = threads}, elements, support.base, support.index, value);
        EXPECT_TRUE(same_bits(elements, expected)) << "threads " << threads;
        EXPECT_TRUE(same_bits(value, expected_value)) << "threads " << threads;
      }
    }
  }
}

TEST(Put, EqualsReference) {
  for (const std::uint32_t count : kSupportCounts) {
    for (const Support kind : kSupports) {
      SCOPED_TRACE(describe(kind, count));
      const auto support = placed(kind, count);
      const auto value = numbered(support.index.size(), -1e6F);
      auto expected = numbered(count, 0.5F);
      put(kReference, expected, support.base, {support.index, value});
      for (const int threads : {1, 2, 3}) {
        auto elements = numbered(count, 0.5F);
        put(Exec{.threads = threads}, elements, support.base, {support.index, value});
        EXPECT_TRUE(same_bits(elements, expected)) << "threads " << threads;
      }
    }
  }
}

// The elements have any bits, negative zeros and denormals among them.
TEST(Put, UndoesATake) {
  const auto support = placed(Support::strided, 40001);
  for (const Place place : {lab::kReference, Place::host}) {
    std::vector<float> elements(40001);
    for (std::uint32_t i = 0; i < elements.size(); ++i) {
      elements[i] = std::bit_cast<float>(i * 0x9e3779b9U & 0xff7fffffU);
    }
    const auto before = elements;
    std::vector<float> value(support.index.size());
    const Exec exec{.place = place, .threads = 2};
    take(exec, elements, support.base, support.index, value);
    EXPECT_FALSE(same_bits(elements, before));
    put(exec, elements, support.base, {support.index, value});
    EXPECT_TRUE(same_bits(elements, before));
  }
}

TEST(Take, RefusesWhatLiesOutside) {
  std::vector<float> elements(10), value(1);
  for (const std::uint32_t outside : {99U, 110U}) {
    const std::vector<std::uint32_t> index{outside};
    EXPECT_THROW(take(Exec{}, elements, 100, index, value), UsageError);
    EXPECT_THROW(put(Exec{}, elements, 100, {index, value}), UsageError);
  }
  const std::vector<std::uint32_t> two{100, 101};
  EXPECT_THROW(take(Exec{}, elements, 100, two, value), UsageError);
}

}  // namespace
}  // namespace winnow::kernels
