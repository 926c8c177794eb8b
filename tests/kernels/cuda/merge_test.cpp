// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/merge_cases.hpp"

namespace winnow::tests {
namespace {

/// Two lists in device memory, and room for their union.
struct OnDevice {
  DeviceArray<std::uint32_t> first_index, second_index, index;
  DeviceArray<float> first_value, second_value, value;
  DeviceArray<std::uint64_t> size{1};
  mutable Workspace scratch{kernels::cuda::kDeviceMemory};

  OnDevice(const MergeList& first, const MergeList& second, const Stream& stream)
      : first_index(first.index.size()),
        second_index(second.index.size()),
        index(first.index.size() + second.index.size()),
        first_value(first.value.size()),
        second_value(second.value.size()),
        value(index.span().size()) {
    first_index.upload(first.index, stream);
    second_index.upload(second.index, stream);
    first_value.upload(first.value, stream);
    second_value.upload(second.value, stream);
  }

  void merge(const Stream& stream) const {
    Exec exec = stream.exec();
    exec.device_workspace = &scratch;
    kernels::merge(exec, {.first = {first_index.span(), first_value.span()},
                          .second = {second_index.span(), second_value.span()},
                          .index = index.span(),
                          .value = value.span(),
                          .size = size.span().data()});
  }
  MergeList download(const Stream& stream) const {
    MergeList out{index.download(stream), value.download(stream)};
    const std::uint64_t entries = size.download(stream)[0];
    out.index.resize(entries);
    out.value.resize(entries);
    return out;
  }
};

class MergeOnDevice : public DeviceTest {};

TEST_F(MergeOnDevice, AGraphReplays) {
  const Stream stream;
  MergeList first = merge_list(make_support(Support::random, 300'000, 1), 0, 1);
  const MergeList second = merge_list(make_support(Support::strided, 300'000, 2), 0, 2);
  OnDevice device(first, second, stream);
  device.merge(stream);  // takes its scratch
  const Graph graph(stream, [&] { device.merge(stream); });
  for (std::uint32_t replay = 0; replay < 2; ++replay) {
    first.value = make_input(Input::normal, first.index.size(), replay + 3);
    device.first_value.upload(first.value, stream);
    graph.launch(stream);
    const MergeList expected = merge_by_reference(first, second), got = device.download(stream);
    EXPECT_TRUE(got.index == expected.index);
    EXPECT_TRUE(same_bits(got.value, expected.value));
  }
}

}  // namespace
}  // namespace winnow::tests
