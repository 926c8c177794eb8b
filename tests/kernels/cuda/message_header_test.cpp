// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/message_header.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/checksum.hpp"
#include "kernels/finish_message.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/value_coding.hpp"
#include "lab/reference/place.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/index_cases.hpp"
#include "tests/kernels/cases/message_header_cases.hpp"
#include "tests/kernels/cases/quantize_cases.hpp"

namespace winnow::tests {
namespace {

class MessagesOnDevice : public DeviceTest {};

/// Each replay answers anew.
TEST_F(MessagesOnDevice, AGraphFinishesAndChecks) {
  const Stream stream;
  const CheckCase sound = check_cases().front();
  const DeviceArray<std::byte> message(sound.bytes().size());
  message.upload(sound.bytes(), stream);
  const DeviceArray<std::uint32_t> source(1), status(1);
  const DeviceArray<std::uint64_t> sum(1);
  const Exec exec = stream.exec();
  const Graph graph(stream, [&] {
    kernels::finish_message(exec, {.message = message.span(),
                                   .header = sound.expected,
                                   .layout = kHeaderLayout,
                                   .poison = {source.span(), {}}});
    kernels::zero(exec, std::as_writable_bytes(sum.span()));
    const std::span<const std::byte> bytes = message.span();
    kernels::checksums(exec, {&bytes, 1}, sum.data());
    const kernels::MessageCheck received{
        .bytes = bytes, .expected = sound.expected, .sum = sum.data()};
    kernels::check_headers(exec, {{&received, 1}, kHeaderLayout, status.span()});
  });
  for (const std::uint32_t poison : {1U, 0U}) {
    source.upload(std::vector{poison}, stream);
    graph.launch(stream);
    EXPECT_EQ(status.download(stream)[0], poison == 1 ? kernels::kPoisoned : 0);
  }
}

/// One clear serves all parts of one coding.
TEST_F(MessagesOnDevice, AGraphDecodes) {
  constexpr std::uint32_t kCount = 100'000, kParts = 3;
  const Stream stream;
  const std::vector<std::uint32_t> index = make_support(Support::random, kCount, 1);
  Workspace workspace(kernels::cuda::kDeviceMemory);
  Exec exec = stream.exec();
  exec.device_workspace = &workspace;
  for (const compress::IndexCoding* coding :
       {&compress::kRaw32Coding, &compress::kEliasFanoCoding, &compress::kBitmapCoding}) {
    AlignedBytes bytes = encode_by_reference(*coding, kCount, index);
    const DeviceArray<std::byte> part(bytes.span().size());
    const DeviceArray<std::uint32_t> list(kParts * index.size());
    const DeviceZeros<std::uint32_t> refused(1, stream);
    std::vector<kernels::DecodeJob> jobs;
    for (std::size_t p = 0; p < kParts; ++p) {
      jobs.push_back({kCount, part.span(), list.span().subspan(p * index.size(), index.size()),
                      refused.data()});
    }
    coding->decode(exec, jobs);  // takes scratch, which a capture cannot do
    const Graph graph(stream, [&] { coding->decode(exec, jobs); });
    EXPECT_LE(graph.count(cudaGraphNodeTypeMemset), 1U);
    refused.clear(stream);
    for (int replay = 0; replay < 2; ++replay) {
      part.upload(bytes.span(), stream);
      list.upload(std::vector<std::uint32_t>(kParts * index.size()), stream);
      graph.launch(stream);
      const std::vector<std::uint32_t> all = list.download(stream);
      for (std::size_t p = 0; p < kParts; ++p) {
        EXPECT_TRUE(
            std::ranges::equal(std::span(all).subspan(p * index.size(), index.size()), index));
      }
      EXPECT_EQ(refused.download(stream)[0], 0U);
    }
  }
}

/// Up to 32 messages are decoded, and their values checked, by one kernel.
TEST_F(MessagesOnDevice, MessagesShareLaunches) {
  constexpr std::uint32_t kCount = 1000, kMost = 40;
  struct Case {
    std::size_t messages, kernels;
  };
  constexpr Case kCases[] = {{0, 0}, {1, 1}, {3, 1}, {7, 1}, {32, 1}, {33, 2}, {kMost, 2}};
  const Stream stream;
  Workspace workspace(kernels::cuda::kDeviceMemory);
  Exec exec = stream.exec();
  exec.device_workspace = &workspace;
  const DeviceZeros<std::uint32_t> refused(1, stream);

  const std::vector<std::uint32_t> index = make_support(Support::random, kCount, 1);
  const DeviceArray<std::uint32_t> list(kMost * index.size());
  const auto expect_kernels_of = [&](auto decode, std::span<const std::byte> part) {
    std::vector<kernels::DecodeJob> jobs;
    for (std::size_t p = 0; p < kMost; ++p) {
      jobs.push_back(
          {kCount, part, list.span().subspan(p * index.size(), index.size()), refused.data()});
    }
    decode(exec, std::span(jobs));  // takes scratch, which a capture cannot do
    for (const auto& [messages, kernels] : kCases) {
      const Graph graph(stream, [&] { decode(exec, std::span(jobs).first(messages)); });
      EXPECT_EQ(graph.count(cudaGraphNodeTypeKernel), kernels) << messages;
      EXPECT_LE(graph.count(cudaGraphNodeTypeMemset), 1U) << messages;
    }
  };
  for (const compress::IndexCoding* coding :
       {&compress::kRaw32Coding, &compress::kEliasFanoCoding, &compress::kBitmapCoding}) {
    SCOPED_TRACE(coding->name);
    AlignedBytes bytes = encode_by_reference(*coding, kCount, index);
    const DeviceArray<std::byte> part(bytes.span().size());
    part.upload(bytes.span(), stream);
    expect_kernels_of(coding->decode, part.span());
  }
  expect_kernels_of(kernels::seeded_decode, {});

  for (const kernels::ValueFormat& format : default_formats()) {
    for (const std::uint64_t k : {1023U, 1024U}) {
      SCOPED_TRACE(testing::Message() << name_of(format) << ", " << k << " values");
      Coded coded(format, k);
      std::vector<float> values = make_values(Values::cauchy, k, 1);
      kernels::quantize({.place = lab::kReference}, format, {}, values, coded.span());
      const DeviceArray<std::byte> there(coded.span().size());
      there.upload(coded.span(), stream);
      const std::vector<kernels::CheckValuesJob> jobs(kMost, {k, there.span(), refused.data()});
      const bool takes_all_bits = format.block == 0 && k * format.coding->bits % 64 == 0;
      for (const auto& [messages, kernels] : kCases) {
        const Graph graph(
            stream, [&] { kernels::check_values(exec, format, std::span(jobs).first(messages)); });
        EXPECT_EQ(graph.count(cudaGraphNodeTypeKernel), takes_all_bits ? 0 : kernels) << messages;
      }
    }
  }
  EXPECT_EQ(refused.download(stream)[0], 0U);
}

}  // namespace
}  // namespace winnow::tests
