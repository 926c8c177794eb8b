// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/merge.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/merge_cases.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {
namespace {

MergeList merge_on(Machine& machine, const MergeList& first, const MergeList& second,
                   unsigned blocks = 2) {
  const std::size_t room = first.index.size() + second.index.size();
  MergeList out{std::vector<std::uint32_t>(room, 7), std::vector<float>(room, 7)};
  std::uint64_t size = 0;
  Scratch scratch(kernels::cuda::merge_scratch_bytes(room));
  std::ranges::fill(scratch.span(), std::byte{0});
  machine.launch<kernels::cuda::Merge>(blocks,
                                       {kernels::cuda::make_merge_task({.first = first.view(),
                                                                        .second = second.view(),
                                                                        .index = out.index,
                                                                        .value = out.value,
                                                                        .size = &size},
                                                                       scratch.span().data())});
  out.index.resize(size);
  out.value.resize(size);
  return out;
}

class MergeOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  MergeBody body() {
    return [this](const MergeList& first, const MergeList& second) {
      return merge_on(machine_, first, second);
    };
  }
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, MergeOnModel, testing::ValuesIn(simt_orders()));

TEST_P(MergeOnModel, EqualsReferenceAtAwkwardSizes) {
  for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 4095U, 4097U}) {
    expect_merges(count, body());
  }
}

TEST_P(MergeOnModel, PairsStayTogether) {
  expect_pairs_stay_together(body());
}

TEST_P(MergeOnModel, UnequalListsEqualReference) {
  expect_unequal_lists_merge(body());
}

/// Without any one of its barriers the union goes wrong in some order.
TEST(MergeModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  // Both lists reach to the end, because a tile with entries of one list is its own union.
  const MergeList first = merge_list(make_support(Support::dense, 3000, 1), 0, 4);
  const MergeList second = merge_list(make_support(Support::dense, 2500, 2), 500, 6);
  const MergeList expected = merge_by_reference(first, second);
  Machine whole;
  (void)merge_on(whole, first, second, 1);
  const int barriers = whole.barriers();
  EXPECT_GT(barriers, 5);
  for (int skipped = 0; skipped < barriers; ++skipped) {
    EXPECT_TRUE(std::ranges::any_of(simt_orders(8),
                                    [&](const SimtOrder& order) {
                                      return !works_in_a_child([&] {
                                        Machine machine(order);
                                        machine.skip_barrier(skipped);
                                        const MergeList got = merge_on(machine, first, second, 1);
                                        return got.index == expected.index &&
                                               same_bits(got.value, expected.value);
                                      });
                                    }))
        << "barrier " << skipped << " of " << barriers;
  }
}

}  // namespace
}  // namespace winnow::tests
