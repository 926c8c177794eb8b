// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/merge_cases.hpp"

namespace winnow::tests {
namespace {

/// The union. Its memory has more room than it needs, and holds other values before.
MergeList merged(const Exec& exec, const MergeList& first, const MergeList& second) {
  const std::size_t room = first.index.size() + second.index.size() + 3;
  OnPlace<std::uint32_t> index_a(exec, first.index), index_b(exec, second.index);
  OnPlace<float> value_a(exec, first.value), value_b(exec, second.value);
  OnPlace<std::uint32_t> index(exec, std::vector<std::uint32_t>(room, 7));
  OnPlace<float> value(exec, std::vector<float>(room, 7));
  OnPlace<std::uint64_t> size(exec, std::vector<std::uint64_t>{77});
  kernels::merge(exec, {.first = {index_a.span(), value_a.span()},
                        .second = {index_b.span(), value_b.span()},
                        .index = index.span(),
                        .value = value.span(),
                        .size = size.data()});
  MergeList out{index.download(), value.download()};
  EXPECT_TRUE(std::ranges::all_of(std::span(out.value).last(3), [](float x) { return x == 7; }));
  const std::uint64_t entries = size.download()[0];
  EXPECT_LE(entries, room - 3);
  out.index.resize(std::min<std::size_t>(entries, room));
  out.value.resize(out.index.size());
  return out;
}

MergeBody merge_on(const Exec& exec) {
  return [&exec](const MergeList& first, const MergeList& second) {
    return merged(exec, first, second);
  };
}

TEST(Merge, EqualsReferenceAtAwkwardSizes) {
  for_each_body([](const Exec& exec) {
    for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 4095U, 4097U}) {
      expect_merges(count, merge_on(exec));
    }
  });
}

TEST(Merge, PairsStayTogether) {
  for_each_body([](const Exec& exec) { expect_pairs_stay_together(merge_on(exec)); });
}

TEST(Merge, OfUnequalListsEqualsReference) {
  for_each_body([](const Exec& exec) { expect_unequal_lists_merge(merge_on(exec)); });
}

/// The lists are long enough for several threads.
TEST(Merge, OfLargeListsEqualsReference) {
  struct Case {
    MergeList first, second, expected;
  };
  std::vector<Case> cases;
  const auto make = [&](Support a, Support b) {
    const auto count = static_cast<std::uint32_t>(many(kLargeSize));
    Case c{merge_list(make_support(a, count, 1), 0, 1),
           merge_list(make_support(b, count, 2), 0, 2),
           {}};
    c.expected = merge_by_reference(c.first, c.second);
    cases.push_back(std::move(c));
  };
  for_each_body([&](const Exec& exec) {
    if (cases.empty()) {
      make(Support::dense, Support::dense);
      make(Support::dense, Support::random);
      make(Support::strided, Support::dense);
      make(Support::last, Support::dense);
      make(Support::random, Support::clustered);
    }
    for (const Case& c : cases) {
      const MergeList got = merged(exec, c.first, c.second);
      EXPECT_TRUE(got.index == c.expected.index);
      EXPECT_TRUE(same_bits(got.value, c.expected.value));
    }
  });
}

/// Checks the declaration's text, position by position, without the reference body.
TEST(Merge, IsWhatIsDeclared) {
  const MergeList first = merge_list(make_support(Support::random, 300'000, 8), 0, 8);
  const MergeList second = merge_list(make_support(Support::random, 300'000, 9), 0, 9);
  std::map<std::uint32_t, std::vector<float>> named;
  for (const MergeList* list : {&first, &second}) {
    for (std::size_t j = 0; j < list->index.size(); ++j) {
      named[list->index[j]].push_back(list->value[j]);
    }
  }
  EXPECT_LT(named.size(), first.index.size() + second.index.size());
  for_each_body([&](const Exec& exec) {
    const MergeList found = merged(exec, first, second);
    ASSERT_EQ(found.index.size(), named.size());
    std::size_t at = 0;
    for (const auto& [position, values] : named) {
      const float sum = values.size() == 2 ? values[0] + values[1] : values[0];
      EXPECT_EQ(found.index[at], position);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(found.value[at++]), std::bit_cast<std::uint32_t>(sum));
    }
  });
}

TEST(Merge, RefusesWrongSizes) {
  std::vector<std::uint32_t> index(4), two{1, 5};
  std::vector<float> value(4);
  std::uint64_t size = 0;
  const kernels::SparseView list{two, std::span(value).first(2)};
  const kernels::MergeJob sound{
      .first = list, .second = list, .index = index, .value = value, .size = &size};
  EXPECT_NO_THROW(kernels::merge({}, sound));
  const auto refuses = [&](const auto& change) {
    kernels::MergeJob wrong = sound;
    change(wrong);
    EXPECT_THROW(kernels::merge({}, wrong), UsageError);
  };
  refuses([](auto& wrong) { wrong.size = nullptr; });
  refuses([](auto& wrong) { wrong.index = wrong.index.first(3); });
  refuses([](auto& wrong) { wrong.value = wrong.value.first(3); });
  refuses([](auto& wrong) { wrong.second.value = wrong.second.value.first(1); });
}

}  // namespace
}  // namespace winnow::tests
