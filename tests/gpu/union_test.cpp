// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The sum of two messages as one, in device memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "compress/compressor.hpp"
#include "compress/partial.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "tests/compress/messages.hpp"
#include "tests/harness/device.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {
namespace {

using compress::MessageView;

/// Two messages that carry everything leave room to merge lists later.
TEST_F(DeviceTest, UnionsOfListsAllocateNothingAfterOneOfEverything) {
  constexpr std::uint64_t kCount = 1 << 20;
  const Stream stream;
  Workspace host, device(kernels::cuda::kDeviceMemory);
  Exec place = stream.exec();
  place.workspace = &host;
  place.device_workspace = &device;
  const auto compressor = compress::make_compressor("topk:0.5");
  const std::vector<std::uint32_t> host_index = spread(kCount, kCount / 8);
  kernels::PlaceArray<float> values(place, kCount);
  kernels::PlaceArray<std::uint32_t> index(place, host_index.size());
  kernels::fill(place, values.span(), 1);
  kernels::copy(place, std::as_writable_bytes(index.span()), std::as_bytes(std::span(host_index)));
  const MessageView all{.header = gradient_header(kCount, kCount),
                        .term = {.value = values.span()}};
  MessageView list = all;
  list.header.k = host_index.size();
  list.term = {.index = index.span(), .value = all.term.value.first(host_index.size())};
  compress::Part part{.pieces = {}, .count = kCount, .k = kCount / 2};
  compress::plan_partial(part, 2, compressor->codings());
  const compress::Header sum =
      compress::partial_header(gradient_header(kCount, kCount / 2), part, 2);
  const auto allocations_with = [&](const MessageView& message) {
    const Workspace::Scope scope(host), device_scope(device);
    const compress::Merged merged = compressor->merge(place, sum, message, message);
    if (const auto* const both = std::get_if<compress::Union>(&merged)) {
      (void)compressor->finalize(place, *both, kernels::read(place, both->size));
    }
    return device.allocations();
  };
  const std::uint64_t before = allocations_with(all);
  EXPECT_EQ(allocations_with(list), before);
}

}  // namespace
}  // namespace winnow::tests
