// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/message_header.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/checksum.cuh"
#include "tests/cuda/message_header_cases.hpp"
#include "tests/simt/machine.hpp"
#include "tests/simt/orders.hpp"

namespace winnow::tests {
namespace {

using namespace kernels::cuda;

/// put_header and checksum on the model.
SealBody seal_on(Machine& machine) {
  return [&machine](std::span<std::byte> message, const Header& header,
                    std::span<const std::uint32_t> words,
                    std::span<const kernels::SelectResult> results) {
    machine.launch<PutHeader>(1, make_put_header_task(message, std::bit_cast<HeaderBytes>(header),
                                                      kHeaderLayout, {words, results}));
    auto* const at = reinterpret_cast<std::uint64_t*>(message.data() + offsetof(Header, checksum));
    machine.launch<Checksum>(2, make_checksum_task(message, at));
  };
}

/// What check_headers is told of a case, all of it in host memory.
std::vector<ReceivedMessage> received(std::span<const CheckCase> cases,
                                      std::vector<std::uint64_t>& sums) {
  std::vector<ReceivedMessage> messages;
  sums.resize(cases.size());
  for (std::size_t m = 0; m < cases.size(); ++m) {
    const CheckCase& c = cases[m];
    sums[m] = c.sum();
    messages.push_back({.bytes = c.bytes(), .expected = c.expected, .sum = &sums[m]});
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

TEST_P(MessageHeaderOnModel, SealedInPlaceEqualsReference) {
  expect_seals_equal_reference(seal_on(machine_));
}

TEST_P(MessageHeaderOnModel, EveryChangedBitIsTold) {
  for (const unsigned blocks : {1U, 2U, 4U}) {
    expect_all_statuses([&](std::span<const CheckCase> cases) {
      std::vector<std::uint64_t> sums;
      std::vector<std::uint32_t> status(cases.size(), 77);
      for_each_check_task(
          received(cases, sums), kHeaderLayout, status,
          [&](const CheckHeadersTask& task) { machine_.launch<CheckHeaders>(blocks, task); });
      return status;
    });
  }
}

/// The thread that finds poison is not the one that writes the flag.
TEST(MessageHeaderModel, AHeaderNeedsItsBarrier) {
  const auto is_poisoned = [](const SimtOrder& order, int skipped) {
    Machine machine(order);
    machine.skip_barrier(skipped);
    std::vector<std::uint64_t> message(9);
    std::vector<std::uint32_t> words(100);
    words[77] = 1;
    const auto bytes = std::as_writable_bytes(std::span(message));
    machine.launch<PutHeader>(1, make_put_header_task(bytes, {}, kHeaderLayout, {words, {}}));
    EXPECT_EQ(machine.barriers(), 1);
    return header_of(bytes).flags == Header::kPoison;
  };
  const auto orders = simt_orders();
  EXPECT_TRUE(
      std::ranges::all_of(orders, [&](const SimtOrder& order) { return is_poisoned(order, -1); }));
  EXPECT_FALSE(
      std::ranges::all_of(orders, [&](const SimtOrder& order) { return is_poisoned(order, 0); }));
}

TEST(MessageHeaderModel, WrongSizesAndPlacesAreRefused) {
  std::vector<std::uint64_t> memory(9);
  const auto bytes = std::as_writable_bytes(std::span(memory));
  const auto refuses_put = [](std::span<std::byte> message, const HeaderLayout& layout,
                              const std::string& why) {
    EXPECT_THAT([&] { (void)make_put_header_task(message, {}, layout, {}); },
                testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  refuses_put(bytes.first(56), kHeaderLayout, "no shorter than its header");
  refuses_put(bytes.subspan(4), kHeaderLayout, "8-byte aligned");
  refuses_put(bytes, {.flags_at = 7, .poison = 1, .checksum_at = 56}, "multiple of 2");
  refuses_put(bytes, {.flags_at = 64, .poison = 1, .checksum_at = 56}, "multiple of 2");
  refuses_put(bytes, {.flags_at = 6, .poison = 1, .checksum_at = 52}, "one of 8");
  refuses_put(bytes, {.flags_at = 6, .poison = 1, .checksum_at = 64}, "one of 8");
  refuses_put(bytes, {.flags_at = 58, .poison = 1, .checksum_at = 56}, "apart");

  const auto refuses_check = [](const ReceivedMessage& message, std::size_t words,
                                const std::string& why) {
    std::vector<std::uint32_t> status(words);
    const auto launch = [](const CheckHeadersTask&) {};
    EXPECT_THAT(
        [&] {
          for_each_check_task({&message, 1}, kHeaderLayout, status, launch);
        },
        testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  const std::uint64_t sum = 0;
  refuses_check({.bytes = bytes, .expected = {}, .sum = &sum}, 2, "a word for its status");
  refuses_check({.bytes = bytes.first(56), .expected = {}, .sum = &sum}, 1, "no shorter");
  refuses_check({.bytes = bytes.subspan(4), .expected = {}, .sum = &sum}, 1, "8-byte aligned");
  refuses_check({.bytes = bytes, .expected = {}}, 1, "checksum of its bytes");
}

}  // namespace
}  // namespace winnow::tests
