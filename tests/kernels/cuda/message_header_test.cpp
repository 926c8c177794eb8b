// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/message_header.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/checksum.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/seal.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/index_cases.hpp"
#include "tests/kernels/cases/message_header_cases.hpp"

namespace winnow::tests {
namespace {

class MessagesOnDevice : public DeviceTest {};

/// Each replay answers anew.
TEST_F(MessagesOnDevice, AGraphSealsAndChecks) {
  const Stream stream;
  const CheckCase sound = check_cases().front();
  const DeviceArray<std::byte> message(sound.bytes().size());
  message.upload(sound.bytes(), stream);
  const DeviceArray<std::uint32_t> source(1), status(1);
  const DeviceArray<std::uint64_t> sum(1);
  const Exec exec = stream.exec();
  const Graph graph(stream, [&] {
    kernels::seal(exec, {.message = message.span(),
                         .header = sound.expected,
                         .layout = kHeaderLayout,
                         .poison = {source.span(), {}}});
    kernels::zero(exec, std::as_writable_bytes(sum.span()));
    const std::span<const std::byte> bytes = message.span();
    kernels::checksums(exec, {&bytes, 1}, sum.data());
    const kernels::ReceivedMessage received{
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

}  // namespace
}  // namespace winnow::tests
