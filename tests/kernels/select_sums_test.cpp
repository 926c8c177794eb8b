// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What an owner does with its positions: adds lists to acc in rank order, and selects.
#include "kernels/select_sums.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>
#include <winnow/error.hpp>

#include "tests/kernels/cases/sums_cases.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

using kernels::OwnedSums;
using kernels::Partition;
using kernels::SelectBound;
using kernels::SelectResult;
using kernels::SelectSumsJob;
using kernels::Term;

constexpr SelectResult kNothingListed{.finite = true,
                                      .candidates = 0,
                                      .passes = 1,
                                      .listed = 0,
                                      .listed_by = std::numeric_limits<float>::infinity()};

class SelectSums : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, SelectSums,
                         testing::Values(Input::normal, Input::cauchy, Input::all_equal,
                                         Input::all_zero, Input::ascending, Input::denormal,
                                         Input::ties));

TEST_P(SelectSums, EqualsReferenceWithAnyBound) {
  for (const std::size_t count : {1u, 65u, 1000u, 12001u}) {
    for (const std::uint32_t owners : {1u, 3u, 4u}) {
      for (const std::uint64_t base : {0u, 6400u}) {
        for (const unsigned every : {1u, 40u}) {
          const SumsJob job(GetParam(), count, owners, base, every);
          if (job.count() == 0) continue;
          for (const std::size_t k : {job.count() / 100 + 1, job.count()}) {
            SelectBound unused;
            const SumsOutcome expected =
                select_sums_on_host(job, {.place = Place::reference}, k, unused);
            for (const int threads : {1, 3}) {
              SelectBound bound;
              for (int step = 0; step < 3; ++step) {  // none, carried, carried
                expect_equal(select_sums_on_host(job, {.threads = threads}, k, bound), expected);
              }
              bound.bound *= 4;
              expect_equal(select_sums_on_host(job, {.threads = threads}, k, bound), expected);
              bound.bound = 0;
              expect_equal(select_sums_on_host(job, {.threads = threads}, k, bound, 3), expected);
            }
          }
        }
      }
    }
  }
}

TEST(SelectSumsBound, IsLearntSoThatTheNextStepReadsOnlyWhatMatters) {
  const SumsJob job(Input::normal, 300000, 3, 0, 50);
  SelectBound bound;
  EXPECT_EQ(select_sums_on_host(job, {}, 1000, bound).result.passes, 2u);
  for (int step = 0; step < 5; ++step) {
    const auto result = select_sums_on_host(job, {}, 1000, bound).result;
    EXPECT_EQ(result.passes, 1u);
    EXPECT_LT(result.candidates, 2000u);
  }
}

TEST(SelectSumsOrder, IsThatOfRanks) {
  // Rank 1 of 3 owns: (0 + 1e8) + acc + -1e8 loses an acc of 1 and keeps one of 16.
  const Partition partition(3, 64 * 3);
  std::vector<float> residual(64 * 3, 1.0f);
  residual[partition.position(1, 7)] = 16;
  const std::vector<std::uint32_t> index = {5, 7};
  const std::vector<float> big = {1e8f, 1e8f}, minus = {-1e8f, -1e8f};
  const std::vector<Term> terms = {
      {.index = index, .value = big}, {}, {.index = index, .value = minus}};
  for (const Place place : {Place::reference, Place::cpu}) {
    Workspace workspace;
    std::vector<std::uint32_t> touched(4), chosen(1);
    std::vector<float> sum(4), value(1);
    std::uint64_t touched_count = 0;
    SelectBound bound;
    SelectResult result{};
    const OwnedSums owned{.own = {&partition, 1, 0}, .residual = residual, .count = 64, .most = 64};
    kernels::select_sums({.place = place, .workspace = &workspace},
                         {.owned = owned,
                          .fed = &kNothingListed,
                          .terms = {terms},
                          .out = {chosen, value, touched, sum},
                          .touched_count = &touched_count,
                          .state = &bound,
                          .result = &result});
    EXPECT_TRUE(result.finite);
    ASSERT_EQ(touched_count, 2u);
    EXPECT_EQ(sum[0], 0);
    EXPECT_EQ(sum[1], 16);
    EXPECT_EQ(chosen[0], 7u);
    EXPECT_EQ(value[0], 16);
    EXPECT_EQ(residual[partition.position(1, 7)], 16);
  }
}

TEST(SelectSumsOverflow, IsToldAndNothingOfItIsSent) {
  const Partition partition(2, 128);
  const std::vector<float> residual(128, 3e38f);
  const std::vector<std::uint32_t> index = {9};
  const std::vector<float> huge = {3e38f};
  const std::vector<Term> terms = {{}, {.index = index, .value = huge}};
  for (const Place place : {Place::reference, Place::cpu}) {
    Workspace workspace;
    std::vector<std::uint32_t> touched(1), chosen = {9, 9};
    std::vector<float> sum(1), value = {1, 1};
    std::uint64_t touched_count = 0;
    SelectBound bound;
    SelectResult result{};
    const OwnedSums owned{.own = {&partition, 0, 0}, .residual = residual, .count = 64, .most = 64};
    kernels::select_sums({.place = place, .workspace = &workspace},
                         {.owned = owned,
                          .fed = &kNothingListed,
                          .terms = {terms},
                          .out = {chosen, value, touched, sum},
                          .touched_count = &touched_count,
                          .state = &bound,
                          .result = &result});
    EXPECT_FALSE(result.finite);
    EXPECT_EQ(chosen, (std::vector<std::uint32_t>{0, 1}));
    EXPECT_EQ(value, (std::vector<float>{0, 0}));
  }
}

TEST(SelectSumsContract, RefusesWrongShapes) {
  const Partition partition(2, 128);
  const std::vector<float> residual(128);
  Workspace workspace;
  std::vector<std::uint32_t> chosen(65);
  std::vector<float> value(65);
  SelectBound bound;
  SelectResult result{};
  std::uint64_t touched_count = 0;
  const OwnedSums owned{.own = {&partition, 0, 0}, .residual = residual, .count = 64, .most = 64};
  const std::vector<Term> two(2), three(3), whole(2, {.value = value});
  const SelectSumsJob sound{.owned = owned,
                            .fed = &kNothingListed,
                            .terms = {two},
                            .out = {std::span(chosen).first(1), std::span(value).first(1), {}, {}},
                            .touched_count = &touched_count,
                            .state = &bound,
                            .result = &result};
  EXPECT_NO_THROW(kernels::select_sums({.workspace = &workspace}, sound));
  EXPECT_THROW(kernels::select_sums({}, sound), UsageError);
  const auto refuses = [&](const auto& change) {
    SelectSumsJob wrong = sound;
    change(wrong);
    EXPECT_THROW(kernels::select_sums({.workspace = &workspace}, wrong), UsageError);
  };
  refuses([&](auto& wrong) { wrong.out.index = chosen; });
  refuses([&](auto& wrong) {
    wrong.out.index = {};
    wrong.out.value = {};
  });
  refuses([&](auto& wrong) { wrong.terms = {three}; });
  refuses([&](auto& wrong) { wrong.terms = {whole}; });
  refuses([](auto& wrong) { wrong.fed = nullptr; });
  refuses([](auto& wrong) { wrong.state = nullptr; });
}

}  // namespace
}  // namespace winnow::tests
