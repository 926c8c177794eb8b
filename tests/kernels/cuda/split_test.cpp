// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/split.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/split_cases.hpp"

namespace winnow::tests {
namespace {

class SplitOnDevice : public DeviceTest {};

TEST_F(SplitOnDevice, AGraphReplays) {
  const Stream stream;
  Workspace workspace(kernels::cuda::kDeviceMemory);
  Exec exec = stream.exec();
  exec.device_workspace = &workspace;
  const kernels::Partition partition(3, 100'000);
  SplitList list{.index = make_support(Support::random, 100'000, 1), .value = {}};
  const std::size_t k = list.index.size();
  OnPlace<std::uint32_t> index(exec, list.index), local(exec, k), begin(exec, 4);
  OnPlace<float> value(exec, k), sorted(exec, k);
  workspace.reserve(kernels::split_scratch(exec, partition, k));
  const Graph graph(stream, [&] {
    kernels::split_by_owner(exec, {.list = {index.span(), value.span()},
                                   .partition = partition,
                                   .local = local.span(),
                                   .value = sorted.span(),
                                   .begin = begin.span()});
  });
  for (std::uint32_t replay = 0; replay < 2; ++replay) {
    list.value = make_input(Input::normal, k, replay + 2);
    value.upload(list.value);
    graph.launch(stream);
    const SplitList expected = split_by_definition(list, partition);
    EXPECT_EQ(begin.download(), expected.begin);
    EXPECT_EQ(local.download(), expected.index);
    EXPECT_TRUE(same_bits(sorted.download(), expected.value));
  }
}

}  // namespace
}  // namespace winnow::tests
