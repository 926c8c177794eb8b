// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/memory_ops.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/harness/on_device.hpp"
#include "tests/kernels/cases/memory_ops_cases.hpp"

namespace winnow::tests {
namespace {

class MemoryOpsOnDevice : public DeviceTest {};

TEST_F(MemoryOpsOnDevice, CopyReachesPinnedMemory) {
  const Stream stream;
  const PinnedArray<float> pinned(5);
  const DeviceArray<float> device(5);
  device.upload(std::vector<float>{1, 2, 3, 4, 5}, stream);
  kernels::copy(stream.exec(), pinned.span(), device.span());
  stream.synchronize();
  EXPECT_TRUE(std::ranges::equal(pinned.span(), std::vector<float>{1, 2, 3, 4, 5}));
}

TEST_F(MemoryOpsOnDevice, AGraphReplays) {
  const Stream stream;
  constexpr std::size_t kCount = 100'003;
  const DeviceArray<float> elements(kCount), before(kCount);
  const Exec exec = stream.exec();
  const Graph graph(stream, [&] {
    kernels::copy(exec, before.span(), elements.span());
    kernels::fill(exec, elements.span(), 0);
    kernels::fill(exec, elements.span().subspan(1, 4), 2);
  });
  for (const std::uint32_t seed : {1U, 2U}) {
    const std::vector<float> host = make_input(Input::not_finite, kCount, seed);
    elements.upload(host, stream);
    graph.launch(stream);
    std::vector<float> expected(kCount);
    std::fill_n(expected.begin() + 1, 4, 2.0F);
    EXPECT_TRUE(same_bits(before.download(stream), host));
    EXPECT_TRUE(same_bits(elements.download(stream), expected));
  }
}

/// The host may overwrite a list of any length at once, even if a graph stores it later.
TEST_F(MemoryOpsOnDevice, AGraphStoresWhatTheHostHadThen) {
  const Stream stream;
  for (const std::size_t count : {0U, 1U, 3U, 895U, 896U, 897U, 3000U}) {
    const DeviceArray<std::uint32_t> there(count + 2);
    there.upload(std::vector<std::uint32_t>(count + 2, 9), stream);
    std::vector<std::uint32_t> list(count);
    for (std::size_t i = 0; i < count; ++i) list[i] = static_cast<std::uint32_t>(i) + 10;
    std::vector<std::uint32_t> expected = list;
    expected.insert(expected.begin(), 9);
    expected.push_back(9);
    const auto place = std::as_writable_bytes(there.span().subspan(1, count));
    const Graph graph(
        stream, [&] { kernels::store(stream.exec(), place, std::as_bytes(std::span(list))); });
    std::ranges::fill(list, 0U);
    graph.launch(stream);
    EXPECT_EQ(there.download(stream), expected) << count;
  }
}

}  // namespace
}  // namespace winnow::tests
