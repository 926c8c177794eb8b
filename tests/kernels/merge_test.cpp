// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <random>
#include <vector>
#include <winnow/error.hpp>

#include "tests/kernels/inputs.hpp"
#include "tests/kernels/supports.hpp"

// The cpu body gives the reference's bits for any number of threads, at awkward sizes and supports.

namespace winnow::kernels {
namespace {

using namespace tests;

struct List {
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  SparseView view() const { return {index, value}; }
};

/// Values whose sums round; denormals and negative zeros among them.
List make_list(std::vector<std::uint32_t> index, std::uint32_t base, unsigned seed) {
  std::mt19937 random(seed);
  List list{std::move(index), {}};
  for (std::uint32_t& i : list.index) i += base;
  for (std::size_t j = 0; j < list.index.size(); ++j) {
    switch (random() % 6) {
      case 0:
        list.value.push_back(-0.0F);
        break;
      case 1:
        list.value.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7fffff)));
        break;
      default:
        list.value.push_back(static_cast<float>(random()) / 3e9F - 0.7F);
    }
  }
  return list;
}

/// The union by `exec`, whose output is longer than it need be and full of something else before.
List merged(const Exec& exec, const List& first, const List& second) {
  const std::size_t room = first.index.size() + second.index.size() + 3;
  List out{std::vector<std::uint32_t>(room, 7), std::vector<float>(room, 7.0F)};
  std::uint64_t size = 0;
  merge(exec, {.first = first.view(),
               .second = second.view(),
               .index = out.index,
               .value = out.value,
               .size = &size});
  EXPECT_TRUE(std::ranges::all_of(std::span(out.value).last(3), [](float x) { return x == 7; }));
  out.index.resize(size);
  out.value.resize(size);
  return out;
}

void expect_equals_reference(const List& first, const List& second) {
  const List expected = merged({.place = Place::reference}, first, second);
  for (const int threads : {1, 2, 3}) {
    const List found = merged({.threads = threads}, first, second);
    EXPECT_EQ(found.index, expected.index) << "threads " << threads;
    EXPECT_EQ(bits_of(found.value), bits_of(expected.value)) << "threads " << threads;
  }
}

TEST(Merge, EqualsReference) {
  for (const std::uint32_t count : kSupportCounts) {
    for (const Support a : kSupports) {
      for (const Support b : kSupports) {
        SCOPED_TRACE(describe(a, count) + " and " + describe(b, count));
        const std::uint32_t base = count % 2 == 0 ? 0 : 4000000000U;
        expect_equals_reference(make_list(make_support(a, count, 1), base, 1),
                                make_list(make_support(b, count, 2), base, 2));
      }
    }
  }
}

// Lists of very different lengths, one inside a gap of the other, one behind the other.
TEST(Merge, EqualsReferenceForUnequalLists) {
  std::vector<std::uint32_t> all(200000), even, late;
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = 3 * i;
  for (std::uint32_t i = 100; i < 300; ++i) even.push_back(6 * i);
  for (std::uint32_t i = 0; i < 100000; ++i) late.push_back(600000 + i);
  const List long_one = make_list(all, 0, 3), short_one = make_list(even, 0, 4),
             last = make_list(late, 0, 5), none;
  for (const List* other : {&short_one, &last, &none, &long_one}) {
    expect_equals_reference(long_one, *other);
    expect_equals_reference(*other, long_one);
  }
}

// The text of the declaration, position by position, without the reference body.
TEST(Merge, IsWhatIsDeclared) {
  const List first = make_list(make_support(Support::random, 300000, 8), 0, 8);
  const List second = make_list(make_support(Support::random, 300000, 9), 0, 9);
  std::map<std::uint32_t, std::vector<float>> named;
  for (const List* list : {&first, &second}) {
    for (std::size_t j = 0; j < list->index.size(); ++j)
      named[list->index[j]].push_back(list->value[j]);
  }
  for (const Place place : {Place::reference, Place::cpu}) {
    const List found = merged({.place = place}, first, second);
    ASSERT_EQ(found.index.size(), named.size());
    std::size_t at = 0, both = 0;
    for (const auto& [position, values] : named) {
      both += values.size() - 1;
      const float sum = values.size() == 2 ? values[0] + values[1] : values[0];
      EXPECT_EQ(found.index[at], position);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(found.value[at++]), std::bit_cast<std::uint32_t>(sum));
    }
    EXPECT_GT(both, 0U);
  }
}

TEST(Merge, RefusesTooLittleRoom) {
  const List list = make_list({1, 5}, 0, 1);
  std::vector<std::uint32_t> index(3);
  std::vector<float> value(4);
  std::uint64_t size = 0;
  const MergeJob job{
      .first = list.view(), .second = list.view(), .index = index, .value = value, .size = &size};
  EXPECT_THROW(merge({}, job), UsageError);
}

}  // namespace
}  // namespace winnow::kernels
