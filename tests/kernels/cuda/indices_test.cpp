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

/// A message in device memory, in one of the two codings.
struct OnDevice {
  const compress::IndexCoding& coding;
  std::uint64_t count;
  DeviceArray<std::byte> bytes;
  DeviceArray<std::uint32_t> index;
  DeviceZeros<std::uint32_t> refused;
  Workspace workspace{kernels::cuda::kDeviceMemory};

  OnDevice(const compress::IndexCoding& of, std::uint64_t universe, std::size_t k,
           const Stream& stream)
      : coding(of),
        count(universe),
        bytes(of.bytes(universe, k).value_or(0)),
        index(k),
        refused(1, stream) {}

  void decode(const Stream& stream) {
    refused.clear(stream);
    Exec exec = stream.exec();
    exec.device_workspace = &workspace;
    const kernels::DecodeJob job{count, bytes.span(), index.span(), refused.span().data()};
    coding.decode(exec, {&job, 1});
  }
};

IndexBody on_device(const compress::IndexCoding& coding, const Stream& stream) {
  const auto encode = [&](std::uint64_t count, std::span<const std::uint32_t> index,
                          std::span<std::byte> out) {
    seal_indices(out, seal_on_device(coding.seal, count, index, stream));
  };
  const auto decode = [&](std::uint64_t count, std::span<const std::byte> in,
                          std::span<std::uint32_t> index) {
    OnDevice device(coding, count, index.size(), stream);
    device.bytes.upload(in, stream);
    device.decode(stream);
    std::ranges::copy(device.index.download(stream), index.begin());
    return device.refused.download(stream)[0] == 0;
  };
  return {coding, encode, decode};
}

class IndicesOnDevice : public DeviceTest {
 protected:
  static constexpr const compress::IndexCoding* kCodings[] = {&compress::kRaw32Coding,
                                                              &compress::kBitmapCoding};
};

TEST_F(IndicesOnDevice, RoundTripAndEqualTheHost) {
  const Stream stream;
  for (const compress::IndexCoding* coding : kCodings) {
    for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 64U, 65U, 4095U, 4097U}) {
      expect_round_trips(count, on_device(*coding, stream));
    }
  }
}

TEST_F(IndicesOnDevice, LargeMessagesRoundTrip) {
  const Stream stream;
  for (const compress::IndexCoding* coding : kCodings) {
    expect_round_trips(static_cast<std::uint32_t>(large((1U << 20) + 7)),
                       on_device(*coding, stream));
  }
}

TEST_F(IndicesOnDevice, RefuseWhatTheHostRefuses) {
  const Stream stream;
  for (const compress::IndexCoding* coding : kCodings) {
    expect_refusals(on_device(*coding, stream));
  }
  expect_refusals_of_few(on_device(compress::kRaw32Coding, stream));
}

TEST_F(IndicesOnDevice, AGraphReplays) {
  const Stream stream;
  const std::vector<std::uint32_t> index = make_support(Support::random, 100'000, 1);
  for (const compress::IndexCoding* coding : kCodings) {
    OnDevice device(*coding, 100'000, index.size(), stream);
    AlignedBytes bytes = encode_by_reference(*coding, 100'000, index);
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
}

}  // namespace
}  // namespace winnow::tests
