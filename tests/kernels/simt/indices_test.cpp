// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/indices.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lab/reference/place.hpp"
#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/finish_cases.hpp"
#include "tests/kernels/cases/index_cases.hpp"
#include "tests/kernels/simt/finish_on.hpp"
#include "tests/kernels/simt/launch_shared.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {
namespace {

using kernels::DecodeJob;

// One launch for all jobs.

void decode_raw32(Machine& machine, std::span<const DecodeJob> jobs) {
  launch_shared<kernels::cuda::Raw32Decode>(machine, jobs, kernels::cuda::make_decode_task);
}

void decode_bitmaps(Machine& machine, std::span<const DecodeJob> jobs) {
  const auto words = [](const DecodeJob& job) { return kernels::bitmap_bytes(job.count) / 8; };
  OnesZeros zeros(jobs, words);
  launch_shared<kernels::cuda::BitmapDecode>(machine, jobs, [&](const DecodeJob& job) {
    return kernels::cuda::make_bitmap_decode_task(job, zeros.take(words(job)));
  });
}

IndexBody raw32_on(Machine& machine) {
  const auto encode = [&machine](std::uint64_t, std::span<const std::uint32_t> index,
                                 std::span<std::byte> out) {
    finish_indices(out, [&](std::span<std::byte> message, const HeaderBytes& header) {
      finish_on(machine, message, header, kernels::cuda::Raw32Indices{index.data(), index.size()});
    });
  };
  const auto decode = [&machine](std::uint64_t count, std::span<const std::byte> in,
                                 std::span<std::uint32_t> index) {
    std::uint32_t refused = 0;
    const DecodeJob job{count, in, index, &refused};
    decode_raw32(machine, {&job, 1});
    return refused == 0;
  };
  return {compress::kRaw32Coding, encode, decode};
}

bool decode_bitmap(Machine& machine, std::uint64_t count, std::span<const std::byte> in,
                   std::span<std::uint32_t> index) {
  std::uint32_t refused = 0;
  const DecodeJob job{count, in, index, &refused};
  decode_bitmaps(machine, {&job, 1});
  return refused == 0;
}

IndexBody bitmap_on(Machine& machine) {
  const auto encode = [&machine](std::uint64_t count, std::span<const std::uint32_t> index,
                                 std::span<std::byte> out) {
    finish_indices(out, [&](std::span<std::byte> message, const HeaderBytes& header) {
      finish_on(machine, message, header,
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

TEST_P(IndicesOnModel, MessagesShareALaunch) {
  expect_shared_decode(compress::kRaw32Coding,
                       [this](std::span<const DecodeJob> jobs) { decode_raw32(machine_, jobs); });
  expect_shared_decode(compress::kBitmapCoding,
                       [this](std::span<const DecodeJob> jobs) { decode_bitmaps(machine_, jobs); });
}

/// Indices that are drawn, for parts of several lengths.
TEST_P(IndicesOnModel, DrawsShareALaunch) {
  constexpr std::size_t kKept[] = {300, 0, 1, 2500};
  std::vector<std::vector<std::uint32_t>> got, expected;
  std::vector<DecodeJob> jobs, reference;
  for (const std::size_t k : kKept) {
    got.emplace_back(k);
    expected.emplace_back(k);
  }
  for (std::size_t d = 0; d < std::size(kKept); ++d) {
    DecodeJob job{.count = 7 * kKept[d], .key = {.seed = 5, .call = d, .rank = 2, .stage = 9}};
    job.index = got[d];
    jobs.push_back(job);
    job.index = expected[d];
    reference.push_back(job);
  }
  launch_shared<kernels::cuda::SeededDecode>(
      machine_, std::span<const DecodeJob>(jobs), [](const DecodeJob& job) {
        return kernels::cuda::SeededTask{job.count, job.index.size(), job.index.data(), job.key};
      });
  kernels::seeded_decode({.place = lab::kReference}, reference);
  EXPECT_TRUE(got == expected);
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
