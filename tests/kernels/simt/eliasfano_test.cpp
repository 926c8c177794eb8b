// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

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

/// One launch for all jobs.
void decode_all(Machine& machine, std::span<const DecodeJob> jobs) {
  const auto words = [](const DecodeJob& job) {
    return kernels::cuda::make_eliasfano_task(job.count, job.index.size()).high_words;
  };
  OnesZeros zeros(jobs, words);
  launch_shared<kernels::cuda::EliasFanoDecode>(machine, jobs, [&](const DecodeJob& job) {
    return kernels::cuda::make_eliasfano_decode_task(job, zeros.take(words(job)));
  });
}

IndexBody on(Machine& machine) {
  const auto encode = [&machine](std::uint64_t count, std::span<const std::uint32_t> index,
                                 std::span<std::byte> out) {
    finish_indices(out, [&](std::span<std::byte> message, const HeaderBytes& header) {
      finish_on(machine, message, header, kernels::cuda::make_eliasfano_indices(count, index));
    });
  };
  const auto decode = [&machine](std::uint64_t count, std::span<const std::byte> in,
                                 std::span<std::uint32_t> index) {
    std::uint32_t refused = 0;
    const DecodeJob job{count, in, index, &refused};
    decode_all(machine, {&job, 1});
    return refused == 0;
  };
  return {compress::kEliasFanoCoding, encode, decode};
}

class EliasFanoOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, EliasFanoOnModel, testing::ValuesIn(simt_orders()));

TEST_P(EliasFanoOnModel, RoundTripsAndEqualsReference) {
  for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 4095U, 4097U, 200'003U}) {
    expect_round_trips(count, on(machine_));
  }
}

TEST_P(EliasFanoOnModel, RoundTripsEveryNumberOfLowBits) {
  expect_all_low_bits(on(machine_), std::vector<std::uint64_t>{1, 7, 64, 99});
}

TEST_P(EliasFanoOnModel, RefusesWhatTheReferenceRefuses) {
  expect_refusals(on(machine_));
  expect_refusals_of_few(on(machine_));
}

TEST_P(EliasFanoOnModel, RefusesDisorderAmongEqualHighBits) {
  expect_refuses_equal_high_bits(on(machine_));
}

TEST_P(EliasFanoOnModel, MessagesShareALaunch) {
  expect_shared_decode(compress::kEliasFanoCoding,
                       [this](std::span<const DecodeJob> jobs) { decode_all(machine_, jobs); });
}

/// Without any one of its barriers the decoder goes wrong in some order.
TEST(EliasFanoModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  const std::vector<std::uint32_t> index = make_support(Support::dense, 17'500, 1);
  AlignedBytes bytes = encode_by_reference(compress::kEliasFanoCoding, 35'000, index);
  const auto works = [&](const SimtOrder& order, int skipped, int* barriers = nullptr) {
    Machine machine(order);
    machine.skip_barrier(skipped);
    std::uint32_t refused = 0;
    std::vector<std::uint32_t> decoded(index.size());
    const DecodeJob job{35'000, bytes.span(), decoded, &refused};
    decode_all(machine, {&job, 1});
    if (barriers != nullptr) *barriers = machine.barriers();
    return refused == 0 && decoded == index;
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
