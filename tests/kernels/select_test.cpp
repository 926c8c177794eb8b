// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Tests the selection from values that select_sums uses.
#include "kernels/cpu/select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lab/reference/select.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

using kernels::SelectBound;

class SelectFrom : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, SelectFrom,
                         testing::Values(Input::normal, Input::cauchy, Input::all_equal,
                                         Input::all_zero, Input::ascending, Input::descending,
                                         Input::denormal, Input::ties));

TEST_P(SelectFrom, ValuesEqualsReferenceAndConserves) {
  for (const std::size_t count : {1u, 63u, 64u, 65u, 4097u, 70001u}) {
    const std::vector<float> values = make_input(GetParam(), count, 6);
    for (const std::size_t k : {std::size_t{1}, count / 100 + 1, count}) {
      Workspace workspace;
      std::vector<float> expected = values, expected_value(k);
      std::vector<std::uint32_t> expected_index(k);
      SelectBound unused;
      kernels::reference::select({.workspace = &workspace}, expected, unused, expected_index,
                                 expected_value);
      std::vector<float> together = expected;
      for (std::size_t j = 0; j < k; ++j) together[expected_index[j]] += expected_value[j];
      EXPECT_TRUE(std::ranges::equal(together, values));
      for_each_target([&] {
        SelectBound bound;
        for (const int threads : {1, 3, 1}) {
          std::vector<float> left = values, value(k);
          std::vector<std::uint32_t> index(k);
          kernels::cpu::select({.threads = threads, .workspace = &workspace}, left, bound, index,
                               value);
          EXPECT_TRUE(index == expected_index);
          EXPECT_TRUE(same_bits(value, expected_value));
          EXPECT_TRUE(same_bits(left, expected));
        }
      });
    }
  }
}

}  // namespace
}  // namespace winnow::tests
