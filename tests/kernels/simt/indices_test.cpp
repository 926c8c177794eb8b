// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/indices.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/index_cases.hpp"
#include "tests/kernels/cases/seal_cases.hpp"
#include "tests/kernels/simt/seal_on.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {
namespace {

IndexBody raw32_on(Machine& machine) {
  const auto encode = [&machine](std::uint64_t, std::span<const std::uint32_t> index,
                                 std::span<std::byte> out) {
    seal_indices(out, [&](std::span<std::byte> message, const HeaderBytes& header) {
      seal_on(machine, message, header, kernels::cuda::Raw32Indices{index.data(), index.size()});
    });
  };
  const auto decode = [&machine](std::uint64_t count, std::span<const std::byte> in,
                                 std::span<std::uint32_t> index) {
    std::uint32_t refused = 0;
    machine.launch<kernels::cuda::Raw32Decode>(
        2, {kernels::cuda::make_decode_task({count, in, index, &refused})});
    return refused == 0;
  };
  return {compress::kRaw32Coding, encode, decode};
}

bool decode_bitmap(Machine& machine, std::uint64_t count, std::span<const std::byte> in,
                   std::span<std::uint32_t> index) {
  Scratch scratch(kernels::cuda::ones_scratch(kernels::bitmap_bytes(count) / 8));
  std::ranges::fill(scratch.span(), std::byte{0});
  std::uint32_t refused = 0;
  machine.launch<kernels::cuda::BitmapDecode>(
      2, {kernels::cuda::make_bitmap_decode_task({count, in, index, &refused},
                                                 scratch.span().data())});
  return refused == 0;
}

IndexBody bitmap_on(Machine& machine) {
  const auto encode = [&machine](std::uint64_t count, std::span<const std::uint32_t> index,
                                 std::span<std::byte> out) {
    seal_indices(out, [&](std::span<std::byte> message, const HeaderBytes& header) {
      seal_on(machine, message, header,
              kernels::cuda::BitmapIndices{index.data(), index.size(), count});
    });
  };
  const auto decode = [&machine](std::uint64_t count, std::span<const std::byte> in,
                                 std::span<std::uint32_t> index) {
    return decode_bitmap(machine, count, in, index);
  };
  return {compress::kBitmapCoding, encode, decode};
}

class IndicesOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, IndicesOnModel, testing::ValuesIn(simt_orders()));

TEST_P(IndicesOnModel, RoundTripAndEqualTheHost) {
  for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 64U, 65U, 4095U, 4097U}) {
    expect_round_trips(count, raw32_on(machine_));
    expect_round_trips(count, bitmap_on(machine_));
  }
}

/// The bitmaps have several tiles of words.
TEST_P(IndicesOnModel, LongBitmapsRoundTrip) {
  constexpr std::uint32_t kCount = 200'003;
  for (const Support support : {Support::dense, Support::random}) {
    expect_round_trip(kCount, make_support(support, kCount, 1), bitmap_on(machine_));
  }
}

TEST_P(IndicesOnModel, RefuseWhatTheHostRefuses) {
  expect_refusals(raw32_on(machine_));
  expect_refusals_of_few(raw32_on(machine_));
  expect_refusals(bitmap_on(machine_));
}

/// Without any one of its barriers the decoder goes wrong in some order.
TEST(IndicesModel, EveryBarrierOfTheBitmapIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  const std::vector<std::uint32_t> index = make_support(Support::dense, 140'000, 1);
  AlignedBytes bytes = encode_by_reference(compress::kBitmapCoding, 140'000, index);
  const auto works = [&](const SimtOrder& order, int skipped, int* barriers = nullptr) {
    Machine machine(order);
    machine.skip_barrier(skipped);
    std::vector<std::uint32_t> decoded(index.size());
    const bool sound = decode_bitmap(machine, 140'000, bytes.span(), decoded);
    if (barriers != nullptr) *barriers = machine.barriers();
    return sound && decoded == index;
  };
  int barriers = 0;
  EXPECT_TRUE(works({}, -1, &barriers));
  EXPECT_GT(barriers, 3);
  for (int skipped = 0; skipped < barriers; ++skipped) {
    const auto orders = simt_orders(4);
    EXPECT_TRUE(std::ranges::any_of(orders,
                                    [&](const SimtOrder& order) {
                                      return !works_in_a_child(
                                          [&] { return works(order, skipped); });
                                    }))
        << "barrier " << skipped << " of " << barriers;
  }
}

}  // namespace
}  // namespace winnow::tests
