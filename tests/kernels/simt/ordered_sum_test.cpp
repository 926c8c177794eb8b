// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/ordered_sum.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lab/reference/place.hpp"
#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/add_cases.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

using Sums = kernels::Placed<kernels::PlacedSpan>;

/// By blocks of `run` tiles. Returns whether all sums are finite.
bool sum_on(Machine& machine, std::uint64_t run, std::span<const SumList> lists, const Sums& sums,
            float factor) {
  std::vector<kernels::Term> terms;
  for (const SumList& list : lists) terms.push_back(list.term());
  std::vector<kernels::cuda::DeviceTerm> there(terms.size());
  std::ranges::transform(terms, there.begin(), kernels::cuda::device_term);
  std::uint32_t not_finite = 0;
  const bool are_many = terms.size() > kernels::kTermsInALaunch;
  kernels::cuda::SumTask task =
      kernels::cuda::make_sum_task({.terms = {terms, are_many ? there.data() : nullptr},
                                    .sums = sums,
                                    .factor = factor,
                                    .not_finite = &not_finite});
  const unsigned blocks = kernels::cuda::sum_blocks(task, run);
  if (blocks > 0) machine.launch<kernels::cuda::OrderedSum>(blocks, {task});
  return not_finite == 0;
}

SumBody sum_on(Machine& machine, std::uint64_t run) {
  return [&machine, run](std::span<const SumList> lists, std::uint64_t begin, std::span<float> sum,
                         float factor) {
    return sum_on(machine, run, lists, kernels::alone({sum, begin}), factor);
  };
}

class SumsOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, SumsOnModel, testing::ValuesIn(simt_orders()));

TEST_P(SumsOnModel, OrderedSumsEqualReference) {
  expect_all_sums_equal_reference(sum_on(machine_, 3));
}

TEST_P(SumsOnModel, SumsOfHalvesAreRoundedOnce) {
  expect_half_sums_equal_rounded_ones([this](const HalfSum& half) {
    const kernels::PlacedSpan sum{half.sum, half.begin}, kept{half.kept, half.begin};
    std::vector<kernels::Term> terms;
    for (const SumList& list : half.lists) terms.push_back(list.term());
    std::uint32_t not_finite = 0, too_large = 0;
    kernels::OrderedSumJob job{.terms = {terms},
                               .sums = kernels::alone(sum),
                               .factor = half.factor,
                               .not_finite = &not_finite,
                               .too_large = &too_large};
    const auto run = [&] {
      kernels::cuda::SumTask task = kernels::cuda::make_sum_task(job);
      const unsigned blocks = kernels::cuda::sum_blocks(task, 3);
      if (blocks > 0) machine_.launch<kernels::cuda::OrderedSum>(blocks, {task});
    };
    run();
    job.rests = {kernels::alone(kept), half.keeper, &too_large};
    run();
    return SumSaid{not_finite != 0, too_large != 0};
  });
}

TEST_P(SumsOnModel, CodedSumsEqualReference) {
  expect_coded_sums_equal_reference(sum_on(machine_, 1));
  expect_coded_sums_equal_reference(sum_on(machine_, 2));
}

/// A run of more tiles than 40 terms are searched for at a time; and groups of terms in each tile.
TEST_P(SumsOnModel, LongRunsEqualReference) {
  constexpr std::uint32_t kTiles = 8;
  EXPECT_LT(1U << kernels::cuda::log2_tiles(40), kTiles);
  for (const std::size_t ranks : {40U, 70U}) {
    expect_sums_equal_reference(ranks, kTiles * kernels::cuda::kSumTile - 9, 0, Input::cauchy,
                                sum_on(machine_, kTiles));
  }
}

TEST_P(SumsOnModel, ManySumsAreOneLaunch) {
  for (const bool whole : {false, true}) {
    ManySums expected(5), got(5);
    const std::vector<SumList> lists = terms_for(expected, 2, whole);
    std::vector<kernels::Term> terms;
    for (const SumList& list : lists) terms.push_back(list.term());
    kernels::ordered_sum({.place = lab::kReference},
                         {.terms = {terms}, .sums = {expected.spans, {}}, .factor = 1.0F / 3});
    sum_on(machine_, whole ? 1 : 7, lists, {got.spans, got.spans.data()}, 1.0F / 3);
    EXPECT_TRUE(same_bits(got.memory, expected.memory));
  }
}

TEST(SumsModel, RefusesSeveralSumsThatAreNotPlaced) {
  const std::vector<kernels::PlacedSpan> spans(2);
  EXPECT_THAT(
      [&] {
        (void)kernels::cuda::make_sum_task({.sums = {spans, nullptr}});
      },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("must be placed")));
}

TEST(SumsModel, RefusesTermsOfWrongSizes) {
  const auto refuses = [](const kernels::Term& term, const std::string& why) {
    EXPECT_THAT([&] { (void)kernels::cuda::device_term(term); },
                testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  const SumList list = code({{1, 2}, {3, 4}}, {&kernels::value_codings()[1]});
  kernels::Term term = list.term();
  term.count = 1;
  refuses(term, "as many values as indices");
  term.index = {};
  term.count = 5;
  refuses(term, "value_bytes bytes");
}

TEST(SumsModel, RefusesMoreTermsThanTravelWithALaunch) {
  const std::vector<kernels::Term> terms(kernels::kTermsInALaunch + 1);
  kernels::OrderedSumJob job{.terms = {terms}};
  EXPECT_THAT([&] { (void)kernels::cuda::make_sum_task(job); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("must lie in device memory")));
  job.terms = {std::span(terms).first(kernels::kTermsInALaunch)};
  EXPECT_NO_THROW((void)kernels::cuda::make_sum_task(job));
}

TEST(SumsModel, RefusesATermThatIsNotAligned) {
  const SumList list = code({{}, {1, 2, 3, 4, 5, 6, 7, 8}}, {&kernels::value_codings()[1]});
  kernels::Term term = list.term();
  const std::span<const std::byte> all = term.coded;
  term.count = 4;
  term.coded = all.subspan(0, 8);
  EXPECT_NO_THROW((void)kernels::cuda::device_term(term));
  term.coded = all.subspan(4, 8);
  EXPECT_THAT([&] { (void)kernels::cuda::device_term(term); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("8-byte aligned")));
}

/// Without any one of its barriers the sum goes wrong in some order.
TEST(SumsModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  // Two tiles, and in each two groups of lists, which are searched and staged one after the other.
  // The first list and the last are shorter than the others, which take as much room. Each list
  // gives a position to another thread, so some thread comes too early for it, and the values are
  // such that a sum shows their order.
  using kernels::cuda::kSumTile;
  constexpr std::uint32_t kCount = 300, kLists = 2 * kernels::cuda::OrderedSum::kGroup;
  constexpr std::uint32_t kRounds = 2 * 21;  // mostly of 3 lists, of 600 or 520 words each
  std::vector<SumList> lists(kLists);
  for (std::uint32_t r = 0; r < kLists; ++r) {
    const std::uint32_t end = r == 0 || r + 1 == kLists ? 200 : kCount;
    for (const std::uint32_t tile : {0U, kSumTile}) {
      for (std::uint32_t i = r % 2 * 40; i < end; ++i) lists[r].index.push_back(tile + i);
    }
    lists[r].value = make_input(Input::normal, lists[r].index.size(), r);
  }
  const auto sum = [&lists](Machine& machine) {
    // The second sum begins where the threads that write it are others than those that clear it.
    std::vector<float> result(kSumTile + kCount, 5);
    const std::span<float> all = result;
    const std::vector<kernels::PlacedSpan> spans{{all.first(64), 0}, {all.subspan(128), 128}};
    sum_on(machine, 2, lists, {spans, spans.data()}, 1);
    return result;
  };
  Machine whole;
  const std::vector<float> expected = sum(whole);
  const int barriers = whole.barriers();
  // After each search, each wait and each list of a tile, and between the tiles.
  constexpr int kOfTile = 2 + kRounds + static_cast<int>(kLists) + 1;
  EXPECT_EQ(barriers, 2 * kOfTile - 1);
  for (int skipped = 0; skipped < barriers; ++skipped) {
    // Between the first two lists only a torn addition would show, which the model does not know.
    if (skipped == 2 || skipped == kOfTile + 2) continue;
    // That of the last list before a search is followed by the one of the search.
    if (skipped % kOfTile == kOfTile / 2 - 1 || skipped == kOfTile - 2) continue;
    const auto orders = simt_orders(16);
    EXPECT_TRUE(std::ranges::any_of(orders,
                                    [&](const SimtOrder& order) {
                                      return !works_in_a_child([&] {
                                        Machine machine(order);
                                        machine.skip_barrier(skipped);
                                        return same_bits(sum(machine), expected);
                                      });
                                    }))
        << "barrier " << skipped << " of " << barriers;
  }
}

}  // namespace
}  // namespace winnow::tests
