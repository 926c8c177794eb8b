// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/split.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/split_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::Partition;

/// A list in device memory, and room for it by owner.
struct OnDevice {
  DeviceArray<std::uint32_t> index, local, begin;
  DeviceArray<float> value, sorted;
  Workspace scratch{kernels::cuda::kDeviceMemory};
  Partition partition;

  OnDevice(const SplitList& list, const Partition& of, const Stream& stream)
      : index(list.index.size()),
        local(list.index.size()),
        begin(of.owners() + 1),
        value(list.index.size()),
        sorted(list.index.size()),
        partition(of) {
    index.upload(list.index, stream);
    value.upload(list.value, stream);
  }

  void split(const Stream& stream) {
    Exec exec = stream.exec();
    exec.device_workspace = &scratch;
    kernels::split_by_owner(exec, {.list = {index.span(), value.span()},
                                   .partition = partition,
                                   .local = local.span(),
                                   .value = sorted.span(),
                                   .begin = begin.span()});
  }
  SplitList download(const Stream& stream) const {
    return {local.download(stream), sorted.download(stream), begin.download(stream)};
  }
};

SplitBody split_on(const Stream& stream) {
  return [&stream](const SplitList& list, const Partition& partition) {
    OnDevice device(list, partition, stream);
    device.split(stream);
    return device.download(stream);
  };
}

PositionsBody positions_on(const Stream& stream) {
  return [&stream](const Partition& partition, std::uint32_t owner,
                   std::span<const std::uint32_t> local) {
    DeviceArray<std::uint32_t> numbers(local.size());
    numbers.upload(local, stream);
    kernels::positions_of(stream.exec(), partition, owner, numbers.span(), numbers.span());
    return numbers.download(stream);
  };
}

class SplitOnDevice : public DeviceTest {};

TEST_F(SplitOnDevice, EqualsTheDefinition) {
  const Stream stream;
  expect_splits(split_on(stream), positions_on(stream));
}

TEST_F(SplitOnDevice, LargeListsEqualTheDefinition) {
  const Stream stream;
  const auto count = static_cast<std::uint32_t>(large((1U << 20) + 7));
  for (const Support support : kSupports) {
    expect_split(support, count, 7, split_on(stream), positions_on(stream));
  }
}

TEST_F(SplitOnDevice, AGraphReplays) {
  const Stream stream;
  const Partition partition(3, 100'000);
  SplitList list{.index = make_support(Support::random, 100'000, 1), .value = {}};
  list.value = make_input(Input::normal, list.index.size(), 1);
  OnDevice device(list, partition, stream);
  device.split(stream);  // takes its scratch
  const Graph graph(stream, [&] { device.split(stream); });
  for (std::uint32_t replay = 0; replay < 2; ++replay) {
    list.value = make_input(Input::normal, list.index.size(), replay + 2);
    device.value.upload(list.value, stream);
    graph.launch(stream);
    const SplitList expected = split_by_definition(list, partition);
    const SplitList got = device.download(stream);
    EXPECT_TRUE(got.begin == expected.begin);
    EXPECT_TRUE(got.index == expected.index);
    EXPECT_TRUE(same_bits(got.value, expected.value));
  }
}

}  // namespace
}  // namespace winnow::tests
