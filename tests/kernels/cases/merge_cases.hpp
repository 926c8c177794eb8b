// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/merge.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/supports.hpp"

namespace winnow::tests {

// Cases of merge for bodies that run on a device, or on the model of one.

struct MergeList {
  std::vector<std::uint32_t> index;
  std::vector<float> value;

  kernels::SparseView view() const { return {index, value}; }
};

/// The union of two lists.
using MergeBody = std::function<MergeList(const MergeList&, const MergeList&)>;

/// Positions from `base` on, with values of all magnitudes.
inline MergeList merge_list(std::vector<std::uint32_t> index, std::uint32_t base,
                            std::uint32_t seed) {
  MergeList list{std::move(index), {}};
  for (std::uint32_t& i : list.index) i += base;
  list.value = make_input(seed % 2 == 0 ? Input::cauchy : Input::denormal, list.index.size(), seed);
  return list;
}

inline MergeList merge_by_reference(const MergeList& first, const MergeList& second) {
  const std::size_t room = first.index.size() + second.index.size();
  MergeList out{std::vector<std::uint32_t>(room), std::vector<float>(room)};
  std::uint64_t size = 0;
  kernels::merge({.place = lab::kReference}, {.first = first.view(),
                                              .second = second.view(),
                                              .index = out.index,
                                              .value = out.value,
                                              .size = &size});
  out.index.resize(size);
  out.value.resize(size);
  return out;
}

inline void expect_merged(const MergeList& first, const MergeList& second, const MergeBody& body) {
  SCOPED_TRACE(testing::Message() << first.index.size() << " and " << second.index.size()
                                  << " entries");
  const MergeList expected = merge_by_reference(first, second), got = body(first, second);
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
}

inline void expect_merges(std::uint32_t count, const MergeBody& body) {
  for (const Support a : kSupports) {
    for (const Support b : {Support::strided, Support::dense, Support::random}) {
      SCOPED_TRACE(describe(a, count) + " and " + describe(b, count));
      // Odd counts end with the largest possible position.
      const std::uint32_t base = count % 2 == 0 ? 0 : 0xffffffffU - count + 1;
      expect_merged(merge_list(make_support(a, count, 1), base, 1),
                    merge_list(make_support(b, count, 2), base, 2), body);
    }
  }
}

/// One of `period` positions is in the first list alone, one in the second alone, and the others
/// are in both, so that cuts meet pairs in every way.
inline void expect_pairs_stay_together(const MergeBody& body) {
  for (const std::uint32_t period : {2U, 3U, 5U, 7U}) {
    MergeList first, second;
    for (std::uint32_t i = 0; i < 4500; ++i) {
      if (i % period != 1) first.index.push_back(i);
      if (i % period != 2) second.index.push_back(i);
    }
    first.value = make_input(Input::normal, first.index.size(), period);
    second.value = make_input(Input::normal, second.index.size(), period + 1);
    expect_merged(first, second, body);
    expect_merged(second, first, body);
  }
}

/// Lists of very different lengths, one inside a gap of the other, one behind the other.
inline void expect_unequal_lists_merge(const MergeBody& body) {
  std::vector<std::uint32_t> all(9000), few, late;
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = 3 * i;
  for (std::uint32_t i = 100; i < 150; ++i) few.push_back(6 * i);
  for (std::uint32_t i = 0; i < 5000; ++i) late.push_back(27'000 + i);
  const MergeList long_one = merge_list(all, 0, 3), none;
  for (const MergeList& other : {merge_list(few, 0, 4), merge_list(late, 0, 5), none, long_one}) {
    expect_merged(long_one, other, body);
    expect_merged(other, long_one, body);
  }
}

}  // namespace winnow::tests
