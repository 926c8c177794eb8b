// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/split.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/split_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::Partition;

SplitBody split_on(const Exec& exec) {
  return [&exec](const SplitList& list, const Partition& partition) {
    const std::size_t k = list.index.size();
    OnPlace<std::uint32_t> index(exec, list.index), local(exec, k);
    OnPlace<std::uint32_t> begin(exec, partition.owners() + 1);
    OnPlace<float> value(exec, list.value), sorted(exec, k);
    kernels::split_by_owner(exec, {.list = {index.span(), value.span()},
                                   .partition = partition,
                                   .local = local.span(),
                                   .value = sorted.span(),
                                   .begin = begin.span()});
    return SplitList{local.download(), sorted.download(), begin.download()};
  };
}

/// Converts local numbers to positions in place.
PositionsBody positions_on(const Exec& exec) {
  return [&exec](const Partition& partition, std::uint32_t owner,
                 std::span<const std::uint32_t> local) {
    OnPlace<std::uint32_t> numbers(exec, local);
    kernels::positions_of(exec, partition, owner, numbers.span(), numbers.span());
    return numbers.download();
  };
}

TEST(Split, EqualsTheDefinition) {
  for_each_body([](const Exec& exec) { expect_splits(split_on(exec), positions_on(exec)); });
}

TEST(Split, LargeListsEqualTheDefinition) {
  for_each_body([](const Exec& exec) {
    const auto count = static_cast<std::uint32_t>(many((1U << 17) + 7));
    for (const Support support : kSupports) {
      expect_split(support, count, 7, split_on(exec), positions_on(exec));
    }
  });
}

/// A workspace with the bytes of split_scratch allocates no further block.
TEST(Split, TakesNoMoreScratchThanItSays) {
  for_each_body([](const Exec& exec) {
    SplitList list{.index = make_support(Support::dense, 5000, 1), .value = {}};
    list.value = make_input(Input::normal, list.index.size(), 1);
    const Partition partition(3, 5000);
    Workspace& scratch = kernels::scratch_of(exec);
    const Workspace::Scope scope(scratch);
    scratch.reserve(kernels::split_scratch(exec, partition, list.index.size()));
    const std::uint64_t allocations = scratch.allocations();
    (void)split_on(exec)(list, partition);
    EXPECT_EQ(scratch.allocations(), allocations);
  });
}

TEST(Split, RefusesWrongSizes) {
  std::vector<std::uint32_t> index(2), local(2), begin(3);
  std::vector<float> value(2), sorted(2);
  const kernels::SplitJob job{
      .list = {index, value}, .partition = Partition(2, 100), .local = local, .value = sorted};
  const auto refuses = [](const kernels::SplitJob& wrong, const std::string& why) {
    EXPECT_THAT([&] { kernels::split_by_owner({}, wrong); },
                testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  auto wrong = job;
  refuses(wrong, "a place for each owner and one more");
  wrong.begin = begin;
  refuses(wrong, "this needs scratch");
  wrong.value = {};
  refuses(wrong, "equal sizes");
  wrong.partition = Partition(2, 1);
  refuses(wrong, "as many entries as positions");
  EXPECT_THROW(kernels::positions_of({}, Partition(2, 100), 2, index, local), UsageError);
  EXPECT_THROW(kernels::positions_of({}, Partition(2, 100), 0, index, begin), UsageError);
}

}  // namespace
}  // namespace winnow::tests
