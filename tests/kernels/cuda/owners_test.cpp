// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/elementwise.hpp"
#include "kernels/residual_add.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"

namespace winnow::tests {
namespace {

template <class T>
constexpr bool kIsOwner = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                          std::is_nothrow_move_constructible_v<T> &&
                          std::is_nothrow_move_assignable_v<T> && std::is_nothrow_destructible_v<T>;
static_assert(kIsOwner<Stream> && kIsOwner<Event>);
static_assert(kIsOwner<DeviceArray<float>> && kIsOwner<PinnedArray<float>>);
static_assert(std::is_trivially_copyable_v<kernels::cuda::StreamRef>);

class OwnersOnDevice : public DeviceTest {};

std::vector<std::uint32_t> counted(std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1U);
  return numbers;
}

TEST_F(OwnersOnDevice, MemoryMovesWithItsOwner) {
  const Stream stream;
  DeviceArray<std::uint32_t> first(1000);
  const std::vector<std::uint32_t> numbers = counted(1000);
  first.upload(numbers, stream);
  const std::uint32_t* const memory = first.data();
  DeviceArray<std::uint32_t> second(3);
  second = std::move(first);
  EXPECT_EQ(second.data(), memory);
  EXPECT_TRUE(second.download(stream) == numbers);
}

TEST_F(OwnersOnDevice, NothingIsAnArrayToo) {
  const Stream stream;
  const DeviceArray<float> none(0);
  none.upload({}, stream);
  EXPECT_TRUE(none.download(stream).empty());
  EXPECT_TRUE(PinnedArray<float>(0).span().empty());
}

TEST_F(OwnersOnDevice, PinnedMemoryThereAndBack) {
  const Stream stream;
  const PinnedArray<std::uint32_t> there(1000), back(1000);
  const DeviceArray<std::uint32_t> device(1000);
  std::iota(there.span().begin(), there.span().end(), 1U);
  kernels::cuda::enqueue_copy(device.span(), there.span(), stream);
  kernels::cuda::enqueue_copy(back.span(), device.span(), stream);
  stream.synchronize();
  EXPECT_TRUE(std::ranges::equal(back.span(), there.span()));
}

/// One stream runs a chain of many steps; another stream reads its end.
TEST_F(OwnersOnDevice, OrderLetsOneStreamWaitForTheOther) {
  const Stream before, after;
  const Event event;
  const std::size_t count = large(1 << 22);
  constexpr int kSteps = 200;
  const DeviceArray<float> sum(count), one(count), seen(count);
  sum.upload(std::vector<float>(count), before);
  one.upload(std::vector<float>(count, 1), before);
  for (int step = 0; step < kSteps; ++step) {
    kernels::residual_add(before.exec(), sum.span(), one.span());
  }
  kernels::cuda::order(before, after, event);
  kernels::cuda::enqueue_copy(seen.span(), sum.span(), after);
  EXPECT_TRUE(seen.download(after) == std::vector<float>(count, kSteps));
}

/// A second stream joins a capture, and leaves it again.
TEST_F(OwnersOnDevice, OrderIsCaptured) {
  const Stream stream, aside;
  const Event there, back;
  const DeviceArray<float> sum(1000), one(1000);
  sum.upload(std::vector<float>(1000), stream);
  one.upload(std::vector<float>(1000, 1), stream);
  const Graph graph(stream, [&] {
    kernels::cuda::order(stream, aside, there);
    kernels::residual_add(aside.exec(), sum.span(), one.span());
    kernels::cuda::order(aside, stream, back);
  });
  graph.launch(stream);
  graph.launch(stream);
  EXPECT_TRUE(sum.download(stream) == std::vector<float>(1000, 2));
}

/// Each step takes scratch from Exec at the same addresses, so the captured addresses stay valid.
TEST_F(OwnersOnDevice, AWorkspaceOfTheDeviceGivesScratch) {
  const Stream stream;
  Workspace workspace(kernels::cuda::kDeviceMemory);
  Exec exec = stream.exec();
  exec.device_workspace = &workspace;
  const DeviceArray<float> sum(1000), one(1000);
  sum.upload(std::vector<float>(1000), stream);
  one.upload(std::vector<float>(1000, 1), stream);
  const auto step = [&] {
    const Workspace::Scope scope(workspace);
    const auto first = exec.device_workspace->take<float>(1000),
               second = exec.device_workspace->take<float>(1000);
    for (const std::span<float> room : {first, second}) {
      kernels::cuda::enqueue_copy(room, one.span(), stream);
      kernels::residual_add(exec, sum.span(), room);
    }
  };
  step();
  const std::uint64_t allocations = workspace.allocations();
  const Graph graph(stream, step);
  graph.launch(stream);
  graph.launch(stream);
  EXPECT_EQ(workspace.allocations(), allocations);
  EXPECT_TRUE(sum.download(stream) == std::vector<float>(1000, 6));
}

/// Kernels refuse the default stream before they enqueue anything.
TEST_F(OwnersOnDevice, AnExecWithoutAStreamIsRefused) {
  const Stream stream;
  const DeviceArray<float> elements(1000);
  const auto bytes = std::as_writable_bytes(elements.span());
  const Exec exec{.place = Place::cuda};
  EXPECT_THROW(kernels::zero(exec, bytes), UsageError);
  EXPECT_THROW(kernels::scale(exec, elements.span(), 2), UsageError);
  EXPECT_THROW(kernels::residual_add(exec, elements.span(), elements.span()), UsageError);
  EXPECT_NO_THROW(kernels::zero(stream.exec(), bytes));
  stream.synchronize();
}

TEST_F(OwnersOnDevice, EventsTime) {
  const Stream stream;
  const Event begin(Event::Timing::on), end(Event::Timing::on);
  begin.record(stream);
  end.record(stream);
  end.synchronize();
  EXPECT_GE(end.seconds_since(begin), 0);
}

}  // namespace
}  // namespace winnow::tests
