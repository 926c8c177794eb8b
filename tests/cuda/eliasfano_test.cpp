// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/cuda/device.hpp"
#include "tests/cuda/graph.hpp"
#include "tests/cuda/index_cases.hpp"

namespace winnow::tests {
namespace {

/// A message in device memory.
struct OnDevice {
  DeviceArray<std::byte> bytes, scratch;
  DeviceArray<std::uint32_t> index, refused{1};
  std::uint64_t count;

  OnDevice(std::uint64_t universe, std::size_t k)
      : bytes(kernels::eliasfano_shape(universe, k).bytes()),
        scratch(kernels::cuda::eliasfano_decode_scratch(universe, k)),
        index(k),
        count(universe) {}

  void encode(const Stream& stream) {
    kernels::eliasfano_encode({.place = Place::cuda, .stream = stream.get()}, count, index.span(),
                              bytes.span());
  }
  void decode(const Stream& stream) {
    kernels::cuda::eliasfano_decode(
        {.place = Place::cuda, .stream = stream.get()},
        {count, bytes.span(), index.span(), refused.span().data(), scratch.span()});
  }
};

IndexBody on_device(const Stream& stream) {
  const auto encode = [&stream](std::uint64_t count, std::span<const std::uint32_t> index,
                                std::span<std::byte> out) {
    OnDevice device(count, index.size());
    device.index.upload(index, stream);
    device.encode(stream);
    std::ranges::copy(device.bytes.download(stream), out.begin());
  };
  const auto decode = [&stream](std::uint64_t count, std::span<const std::byte> in,
                                std::span<std::uint32_t> index) {
    OnDevice device(count, index.size());
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

TEST_F(EliasFanoOnDevice, AGraphReplaysBothWays) {
  const Stream stream;
  const std::vector<std::uint32_t> index = make_support(Support::random, 100'000, 1);
  OnDevice device(100'000, index.size());
  const Graph encode(stream, [&] { device.encode(stream); });
  const Graph decode(stream, [&] { device.decode(stream); });
  for (int replay = 0; replay < 2; ++replay) {
    device.index.upload(index, stream);
    encode.launch(stream);
    device.index.upload(std::vector<std::uint32_t>(index.size()), stream);
    decode.launch(stream);
    EXPECT_TRUE(device.index.download(stream) == index);
    EXPECT_EQ(device.refused.download(stream)[0], 0U);
  }
}

}  // namespace
}  // namespace winnow::tests
