// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/index_coding.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/index_cases.hpp"
#include "tests/kernels/cuda/seal_on_device.hpp"

namespace winnow::tests {
namespace {

/// A message in device memory.
struct OnDevice {
  DeviceArray<std::byte> bytes;
  DeviceArray<std::uint32_t> index;
  DeviceZeros<std::uint32_t> refused;
  std::uint64_t count;
  Workspace workspace{kernels::cuda::kDeviceMemory};

  OnDevice(std::uint64_t universe, std::size_t k, const Stream& stream)
      : bytes(kernels::eliasfano_shape(universe, k).bytes()),
        index(k),
        refused(1, stream),
        count(universe) {}

  void decode(const Stream& stream) {
    refused.clear(stream);
    Exec exec = stream.exec();
    exec.device_workspace = &workspace;
    const kernels::DecodeJob job{count, bytes.span(), index.span(), refused.span().data()};
    kernels::eliasfano_decode(exec, {&job, 1});
  }
};

IndexBody on_device(const Stream& stream) {
  const auto encode = [&stream](std::uint64_t count, std::span<const std::uint32_t> index,
                                std::span<std::byte> out) {
    seal_indices(out, seal_on_device(kernels::seal_eliasfano, count, index, stream));
  };
  const auto decode = [&stream](std::uint64_t count, std::span<const std::byte> in,
                                std::span<std::uint32_t> index) {
    OnDevice device(count, index.size(), stream);
    device.bytes.upload(in, stream);
    device.decode(stream);
    std::ranges::copy(device.index.download(stream), index.begin());
    return device.refused.download(stream)[0] == 0;
  };
  return {compress::kEliasFanoCoding, encode, decode};
}

class EliasFanoOnDevice : public DeviceTest {};

TEST_F(EliasFanoOnDevice, RoundTripsAndEqualsReference) {
  const Stream stream;
  for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 4095U, 4097U}) {
    expect_round_trips(count, on_device(stream));
  }
}

TEST_F(EliasFanoOnDevice, LargeMessagesRoundTrip) {
  const Stream stream;
  expect_round_trips(static_cast<std::uint32_t>(large((1U << 20) + 7)), on_device(stream));
}

TEST_F(EliasFanoOnDevice, RoundTripsEveryNumberOfLowBits) {
  const Stream stream;
  expect_all_low_bits(on_device(stream));
}

TEST_F(EliasFanoOnDevice, RefusesWhatTheReferenceRefuses) {
  const Stream stream;
  expect_refusals(on_device(stream));
  expect_refusals_of_few(on_device(stream));
}

TEST_F(EliasFanoOnDevice, AGraphReplays) {
  const Stream stream;
  const std::vector<std::uint32_t> index = make_support(Support::random, 100'000, 1);
  OnDevice device(100'000, index.size(), stream);
  AlignedBytes bytes = encode_by_reference(compress::kEliasFanoCoding, 100'000, index);
  device.decode(stream);  // takes scratch, which no capture can
  const Graph decode(stream, [&] { device.decode(stream); });
  for (int replay = 0; replay < 2; ++replay) {
    device.bytes.upload(bytes.span(), stream);
    device.index.upload(std::vector<std::uint32_t>(index.size()), stream);
    decode.launch(stream);
    EXPECT_TRUE(device.index.download(stream) == index);
    EXPECT_EQ(device.refused.download(stream)[0], 0U);
  }
}

}  // namespace
}  // namespace winnow::tests
