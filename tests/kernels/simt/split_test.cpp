// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/split.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/pieces.cuh"
#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/split_cases.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {
namespace {

using kernels::Partition;

/// `skipped` is a barrier of SumUnits. If `barriers` is not null, it receives their number.
SplitList split_on(Machine& machine, const SplitList& list, const Partition& partition,
                   int skipped = -1, int* barriers = nullptr) {
  const std::size_t k = list.index.size();
  SplitList out{std::vector<std::uint32_t>(k, 7), std::vector<float>(k, 7),
                std::vector<std::uint32_t>(partition.owners() + 1, 7)};
  Scratch scratch(kernels::cuda::split_scratch_bytes(partition));
  std::ranges::fill(scratch.span(), std::byte{0});
  const kernels::cuda::SplitTask task =
      kernels::cuda::make_split_task({.list = {list.index, list.value},
                                      .partition = partition,
                                      .local = out.index,
                                      .value = out.value,
                                      .begin = out.begin},
                                     scratch.span().data());
  kernels::cuda::for_each_split_kernel(task, [&](auto kernel, std::uint64_t) {
    constexpr bool kSums = std::is_same_v<decltype(kernel), kernels::cuda::SumUnits>;
    machine.skip_barrier(kSums ? skipped : -1);
    machine.launch(2, kernel);
    if (kSums && barriers != nullptr) *barriers = machine.barriers();
  });
  return out;
}

class SplitOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  SplitBody split() {
    return [this](const SplitList& list, const Partition& partition) {
      return split_on(machine_, list, partition);
    };
  }
  PositionsBody positions() {
    return [this](const Partition& partition, std::uint32_t owner,
                  std::span<const std::uint32_t> local) {
      std::vector<std::uint32_t> index(local.size());
      const kernels::cuda::PositionsOf task{partition, owner, local.data(), index.data(),
                                            index.size()};
      if (task.count > 0) {
        machine_.launch(2, kernels::cuda::Pieces<kernels::cuda::PositionsOf, 1>::of({&task, 1}));
      }
      return index;
    };
  }
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, SplitOnModel, testing::ValuesIn(simt_orders()));

TEST_P(SplitOnModel, EqualsTheDefinition) {
  expect_splits(split(), positions());
}

/// The table has several tiles, and some of its units are empty.
TEST_P(SplitOnModel, LongTablesEqualTheDefinition) {
  expect_split(Support::clustered, 300'001, 3, split(), positions());
}

/// Without any one of its barriers the sums go wrong in some order.
TEST(SplitModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  SplitList list{.index = make_support(Support::random, 300'001, 1), .value = {}};
  list.value = make_input(Input::normal, list.index.size(), 1);
  const Partition partition(3, 300'001);
  const SplitList expected = split_by_definition(list, partition);
  Machine whole;
  int barriers = 0;
  (void)split_on(whole, list, partition, -1, &barriers);
  EXPECT_GT(barriers, 3);
  for (int skipped = 0; skipped < barriers; ++skipped) {
    EXPECT_TRUE(std::ranges::any_of(simt_orders(4),
                                    [&](const SimtOrder& order) {
                                      return !works_in_a_child([&] {
                                        Machine machine(order);
                                        const SplitList got =
                                            split_on(machine, list, partition, skipped);
                                        return got.begin == expected.begin &&
                                               got.index == expected.index &&
                                               same_bits(got.value, expected.value);
                                      });
                                    }))
        << "barrier " << skipped << " of " << barriers;
  }
}

}  // namespace
}  // namespace winnow::tests
