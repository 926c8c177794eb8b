// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/message_header.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/kernels/cases/checksum_cases.hpp"
#include "tests/kernels/cases/message_header_cases.hpp"
#include "tests/kernels/simt/finish_on.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

using namespace kernels::cuda;
using kernels::CallStatus;
using kernels::MessageCheck;

/// Runs finish_message on the model.
FinishBody finish_on(Machine& machine) {
  return [&machine](std::span<std::byte> message, const Header& header,
                    std::span<const std::uint32_t> words,
                    std::span<const kernels::SelectResult> results, CallStatus* status) {
    finish_on<NoIndices>(machine, message, std::bit_cast<HeaderBytes>(header), {}, {words, results},
                         status);
  };
}

/// The cases' messages as check_headers gets them, all in host memory.
std::vector<MessageCheck> received(std::span<const CheckCase> cases,
                                   std::vector<std::uint64_t>& sums) {
  std::vector<MessageCheck> messages;
  sums.resize(cases.size());
  for (std::size_t m = 0; m < cases.size(); ++m) {
    const CheckCase& c = cases[m];
    sums[m] = c.sum();
    messages.push_back({.bytes = c.bytes(),
                        .expected = c.expected,
                        .sum = &sums[m],
                        .number = static_cast<std::uint32_t>(m)});
    for (std::size_t part = 0; part < 2; ++part) {
      const std::optional<std::uint32_t>& refused = c.refused[part];
      if (refused) messages.back().refused[part] = &*refused;
    }
  }
  return messages;
}

class MessageHeaderOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, MessageHeaderOnModel, testing::ValuesIn(simt_orders()));

TEST_P(MessageHeaderOnModel, FinishedInPlaceEqualsReference) {
  expect_messages_equal_reference(finish_on(machine_));
}

TEST_P(MessageHeaderOnModel, EveryChangedBitIsTold) {
  for (const unsigned blocks : {1U, 2U, 4U}) {
    expect_all_statuses([&](std::span<const CheckCase> cases) {
      std::vector<std::uint64_t> sums;
      std::vector<std::uint32_t> status(cases.size(), 77);
      for_each_check_task(
          received(cases, sums), kHeaderLayout, status.data(), nullptr,
          [&](const CheckHeadersTask& task) { machine_.launch<CheckHeaders>(blocks, {task}); });
      return status;
    });
  }
}

TEST_P(MessageHeaderOnModel, TheFirstUnsoundMessageIsTold) {
  expect_all_call_statuses([&](std::span<const CheckCase> cases, CallStatus status) {
    std::vector<std::uint64_t> sums;
    for_each_check_task(
        received(cases, sums), kHeaderLayout, nullptr, &status,
        [&](const CheckHeadersTask& task) { machine_.launch<CheckHeaders>(2, {task}); });
    return status;
  });
}

TEST_P(MessageHeaderOnModel, PaddingBecomesZero) {
  for (const std::size_t padding : {0U, 1U, 4U, 7U}) {
    std::vector<std::uint64_t> message(5000, ~std::uint64_t{0});
    const auto bytes = std::as_writable_bytes(std::span(message));
    finish_on<NoIndices>(machine_, bytes, {}, {}, {}, nullptr, padding);
    EXPECT_EQ(message.back(), ~std::uint64_t{0} >> 8 * padding);
    EXPECT_EQ(message[message.size() - 2], ~std::uint64_t{0});
    Header header = header_of(bytes);
    const std::uint64_t told = std::exchange(header.checksum, 0);
    std::memcpy(bytes.data(), &header, sizeof header);
    EXPECT_EQ(told, checksum_of({}, bytes));
  }
}

TEST_P(MessageHeaderOnModel, ListsOfChecksumsEqualReference) {
  for (const unsigned blocks_each : {1U, 3U}) {
    expect_lists_of_checksums_equal_reference(
        [&](std::span<const std::uint64_t> memory, std::span<const SummedPart> parts) {
          std::vector<std::span<const std::byte>> messages;
          for (const SummedPart& part : parts) messages.push_back(part.of(memory));
          std::vector<std::uint64_t> sums(messages.size());
          for_each_checksums_task(
              messages, sums.data(), [&](const ChecksumsTask& task, std::uint64_t pairs) {
                EXPECT_TRUE(std::ranges::all_of(std::span(task.of).first(task.count),
                                                [&](const auto& of) { return of.pairs <= pairs; }));
                machine_.launch<Checksums>(blocks_each * task.count, {task});
              });
          return sums;
        });
  }
}

/// One thread finds poison and another one writes the flag; and a block adds up the sums of all its
/// warps.
TEST(MessageHeaderModel, AFinishedMessageNeedsItsBarriers) {
  const auto is_finished = [](const SimtOrder& order, int skipped) {
    Machine machine(order);
    machine.skip_barrier(skipped);
    std::vector<std::uint64_t> message(5000, 0x0123456789abcdef);
    std::vector<std::uint32_t> words(100);
    words[77] = 1;
    const auto bytes = std::as_writable_bytes(std::span(message));
    finish_on<NoIndices>(machine, bytes, {}, {}, {words, {}});
    EXPECT_EQ(machine.barriers(), 2);
    Header header = header_of(bytes);
    const std::uint64_t told = std::exchange(header.checksum, 0);
    std::memcpy(bytes.data(), &header, sizeof header);
    return header.flags == Header::kPoison && told == checksum_of({}, bytes);
  };
  const auto orders = simt_orders();
  EXPECT_TRUE(
      std::ranges::all_of(orders, [&](const SimtOrder& order) { return is_finished(order, -1); }));
  for (const int skipped : {0, 1}) {
    EXPECT_FALSE(std::ranges::all_of(orders, [&](const SimtOrder& order) {
      return is_finished(order, skipped);
    })) << skipped;
  }
}

}  // namespace
}  // namespace winnow::tests
