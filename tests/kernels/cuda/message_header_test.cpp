// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/message_header.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "kernels/checksum.hpp"
#include "kernels/seal.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/harness/on_device.hpp"
#include "tests/kernels/cases/message_header_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::CallStatus;
using kernels::ReceivedMessage;

class MessageHeaderOnDevice : public DeviceTest {};

TEST_F(MessageHeaderOnDevice, SealedInPlaceEqualsReference) {
  const Stream stream;
  expect_seals_equal_reference([&](std::span<std::byte> message, const Header& header,
                                   std::span<const std::uint32_t> words,
                                   std::span<const kernels::SelectResult> results) {
    const OnDevice<std::byte> device(message, stream);
    const OnDevice<std::uint32_t> device_words(words, stream);
    const OnDevice<kernels::SelectResult> device_results(results, stream);
    const DeviceZeros<std::uint32_t> poisoned(1, stream);
    kernels::seal(stream.exec(), {.message = device.span(),
                                  .header = std::bit_cast<HeaderBytes>(header),
                                  .layout = kHeaderLayout,
                                  .poison = {device_words.span(), device_results.span()},
                                  .poisoned = poisoned.data()});
    device.download(message);
    return poisoned.download(stream)[0] != 0;
  });
}

/// Messages of cases in device memory, and what is known of them.
struct ReceivedOnDevice {
  std::vector<std::unique_ptr<OnDevice<std::byte>>> memory;
  DeviceZeros<std::uint64_t> sums;
  DeviceArray<std::uint32_t> refused, status;
  std::vector<ReceivedMessage> messages;

  ReceivedOnDevice(std::span<const CheckCase> cases, const Stream& stream)
      : sums(cases.size(), stream), refused(2 * cases.size()), status(cases.size()) {
    std::vector<std::uint32_t> words(2 * cases.size());
    for (std::size_t m = 0; m < cases.size(); ++m) {
      memory.push_back(std::make_unique<OnDevice<std::byte>>(cases[m].bytes(), stream));
      messages.push_back({.bytes = memory.back()->span(),
                          .expected = cases[m].expected,
                          .sum = sums.data() + m,
                          .number = static_cast<std::uint32_t>(m)});
      for (std::size_t part = 0; part < 2; ++part) {
        const std::optional<std::uint32_t>& said = cases[m].refused[part];
        if (!said) continue;
        words[2 * m + part] = *said;
        messages.back().refused[part] = refused.data() + 2 * m + part;
      }
    }
    refused.upload(words, stream);
  }
  void sum(const Stream& stream) const {
    std::vector<std::span<const std::byte>> bytes;
    for (const ReceivedMessage& message : messages) bytes.push_back(message.bytes);
    sums.clear(stream);
    kernels::checksums(stream.exec(), bytes, sums.data());
  }
  void check(const Stream& stream) const {
    sum(stream);
    kernels::check_headers(stream.exec(), {messages, kHeaderLayout, status.span()});
  }
};

TEST_F(MessageHeaderOnDevice, EveryChangedBitIsTold) {
  const Stream stream;
  expect_all_statuses([&](std::span<const CheckCase> cases) {
    const ReceivedOnDevice device(cases, stream);
    device.check(stream);
    return device.status.download(stream);
  });
}

TEST_F(MessageHeaderOnDevice, TheFirstUnsoundMessageIsTold) {
  const Stream stream;
  expect_all_call_statuses([&](std::span<const CheckCase> cases, CallStatus before) {
    const ReceivedOnDevice device(cases, stream);
    const OnDevice<CallStatus> status({&before, 1}, stream);
    device.sum(stream);
    kernels::judge_messages(stream.exec(), {device.messages, kHeaderLayout, status.span().data()});
    status.download({&before, 1});
    return before;
  });
}

/// Each replay answers anew.
TEST_F(MessageHeaderOnDevice, AGraphReplays) {
  const Stream stream;
  const CheckCase sound = check_cases().front();
  const ReceivedOnDevice device({&sound, 1}, stream);
  const DeviceArray<std::uint32_t> source(1);
  const std::span<std::byte> message = device.memory.front()->span();
  const Graph graph(stream, [&] {
    kernels::seal(stream.exec(), {.message = message,
                                  .header = sound.expected,
                                  .layout = kHeaderLayout,
                                  .poison = {source.span(), {}}});
    device.check(stream);
  });
  for (const std::uint32_t poison : {1U, 0U}) {
    source.upload(std::vector{poison}, stream);
    graph.launch(stream);
    EXPECT_EQ(device.status.download(stream)[0], poison == 1 ? kernels::kPoisoned : 0);
  }
}

}  // namespace
}  // namespace winnow::tests
