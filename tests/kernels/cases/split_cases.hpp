// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/arithmetic/partition.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/supports.hpp"

namespace winnow::tests {

// Cases of split_by_owner for bodies of any place, and of the SIMT machine.

/// A list by position, or by local number.
struct SplitList {
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  std::vector<std::uint32_t> begin = {};
};

/// The list by local number, owner by owner, with `begin`.
using SplitBody = std::function<SplitList(const SplitList&, const kernels::Partition&)>;
/// Runs kernels::positions_of.
using PositionsBody = std::function<std::vector<std::uint32_t>(
    const kernels::Partition&, std::uint32_t owner, std::span<const std::uint32_t> local)>;

/// The specification of split_by_owner.
inline SplitList split_by_definition(const SplitList& list, const kernels::Partition& partition) {
  SplitList sorted{.index = {}, .value = {}, .begin = {0}};
  for (std::uint32_t owner = 0; owner < partition.owners(); ++owner) {
    for (std::size_t j = 0; j < list.index.size(); ++j) {
      if (partition.owner_of_unit(list.index[j] / kernels::Partition::kUnit) != owner) continue;
      sorted.index.push_back(static_cast<std::uint32_t>(partition.local(list.index[j])));
      sorted.value.push_back(list.value[j]);
    }
    sorted.begin.push_back(static_cast<std::uint32_t>(sorted.index.size()));
  }
  return sorted;
}

inline void expect_split(const SplitList& list, const kernels::Partition& partition,
                         const SplitBody& split, const PositionsBody& positions) {
  SCOPED_TRACE(testing::Message() << list.index.size() << " entries of " << partition.count()
                                  << " positions, " << partition.owners() << " owners");
  const SplitList expected = split_by_definition(list, partition), got = split(list, partition);
  EXPECT_TRUE(got.begin == expected.begin);
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
  // The local numbers give the positions again.
  std::vector<bool> named(list.index.size());
  for (std::uint32_t owner = 0; owner < partition.owners(); ++owner) {
    const std::size_t from = expected.begin[owner], to = expected.begin[owner + 1];
    if (from == to) continue;
    const auto index =
        positions(partition, owner, std::span(expected.index).subspan(from, to - from));
    for (const std::uint32_t position : index) {
      const auto at = std::ranges::lower_bound(list.index, position);
      ASSERT_TRUE(at != list.index.end() && *at == position);
      named[static_cast<std::size_t>(at - list.index.begin())] = true;
    }
  }
  EXPECT_TRUE(std::ranges::all_of(named, [](bool b) { return b; }));
}

inline void expect_split(Support support, std::uint32_t count, std::uint32_t owners,
                         const SplitBody& split, const PositionsBody& positions) {
  SplitList list{.index = make_support(support, count, 1), .value = {}};
  list.value = make_input(Input::normal, list.index.size(), owners);
  expect_split(list, kernels::Partition(owners, count), split, positions);
}

/// The last group of a partition is whole, or one unit, or part of one. Some partitions have more
/// owners than units.
inline void expect_splits(const SplitBody& split, const PositionsBody& positions) {
  for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 64U, 65U, 4095U, 4097U}) {
    for (const std::uint32_t owners : {1U, 3U, 64U}) {
      for (const Support support : {Support::dense, Support::random, Support::last}) {
        expect_split(support, count, owners, split, positions);
      }
    }
  }
}

}  // namespace winnow::tests
