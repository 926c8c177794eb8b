// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/owned.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/owned_on_place.hpp"

namespace winnow::tests {
namespace {

class OwnedOnDevice : public DeviceTest {};

/// The graph reads the number of values when it runs.
TEST_F(OwnedOnDevice, AGraphReplays) {
  const Stream stream;
  Workspace workspace(kernels::cuda::kDeviceMemory);
  Exec exec = stream.exec();
  exec.device_workspace = &workspace;
  const kernels::Partition partition(3, 10'000);
  const auto locals = static_cast<std::uint32_t>(partition.local_count(1));
  OwnedCase c{OwnedOp::add, partition, 1, make_list(Support::random, locals, 1, Input::normal), 1};
  std::vector<OwnedPiece> expected = make_pieces(10'000);
  OwnedOnPlace device(exec, c, expected);
  const Graph graph(stream, [&] { device.move(c); });
  for (const std::uint64_t count : {std::uint64_t{5}, std::uint64_t{c.values.value.size()}}) {
    c.count = count;
    device.count.upload(std::vector<std::uint64_t>{count});
    graph.launch(stream);
    (void)move_by_definition(c, expected);
    for (std::size_t p = 0; p < expected.size(); ++p) {
      EXPECT_TRUE(same_bits(device.elements[p].download(), expected[p].elements));
    }
  }
}

}  // namespace
}  // namespace winnow::tests
