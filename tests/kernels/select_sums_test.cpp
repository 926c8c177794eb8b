// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What an owner does with its positions: adds lists to acc in rank order, and selects.
#include "kernels/select_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <winnow/error.hpp>

#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

using kernels::OwnedSums;
using kernels::Partition;
using kernels::SelectBound;
using kernels::SparseView;

/// A parameter from position `base` of a part on, of which rank `self` of `owners` sums a share,
/// and what the others send of the part.
struct Job {
  Job(Input input, std::size_t count, std::uint32_t owners, std::uint64_t first_position,
      unsigned every)
      : partition(owners, first_position + count + 200),
        self(owners / 2),
        base(first_position),
        residual(make_input(input, count, 1)),
        index(owners),
        value(owners) {
    std::mt19937 random(every);
    begin = end = 0;
    bool first = true;
    for (std::size_t i = 0; i < count; ++i) {
      if (partition.owner_of_unit((base + i) / 64) != self) continue;
      const std::uint64_t local = partition.local(base + i);
      if (first) begin = local;
      first = false;
      end = local + 1;
    }
    for (std::uint32_t rank = 0; rank < owners; ++rank) {
      if (rank == self) continue;
      for (std::uint32_t local = 0; local < partition.local_count(self); ++local) {
        if (random() % every == 0) index[rank].push_back(local);
      }
      value[rank] = make_input(Input::normal, index[rank].size(), rank);
    }
  }

  std::uint64_t count() const { return end - begin; }
  std::vector<SparseView> terms() const {
    std::vector<SparseView> terms;
    for (std::size_t rank = 0; rank < index.size(); ++rank) {
      terms.push_back({index[rank], value[rank]});
    }
    return terms;
  }
  std::size_t entries() const {
    std::size_t entries = 0;
    for (const auto& list : index) entries += list.size();
    return entries;
  }

  Partition partition;
  std::uint32_t self;
  std::uint64_t base, begin, end;
  std::vector<float> residual;
  std::vector<std::vector<std::uint32_t>> index;  // of each rank
  std::vector<std::vector<float>> value;
};

struct Outcome {
  std::vector<std::uint32_t> index, touched;
  std::vector<float> value, sum;
  kernels::SelectResult result;
};

/// `bound`: what the pass before listed by; `room` for its list.
Outcome run(const Job& job, const Exec& exec, std::size_t k, SelectBound& bound,
            std::size_t room = std::numeric_limits<std::size_t>::max()) {
  Workspace workspace;
  Exec with_workspace = exec;
  with_workspace.workspace = &workspace;
  std::vector<std::uint32_t> listed_index;
  std::vector<float> listed_value;
  OwnedSums owned{.residual = job.residual,
                  .begin = job.begin,
                  .count = job.count(),
                  .most = std::min<std::uint64_t>(job.entries(), job.count())};
  owned.own = {.partition = &job.partition, .self = job.self, .base = job.base};
  if (bound.k == k) owned.own.bound = bound.bound;
  for (std::uint64_t local = job.begin; local < job.end; ++local) {
    const float acc = job.residual[job.partition.position(job.self, local) - job.base];
    if (std::fabs(acc) < owned.own.bound) continue;
    listed_index.push_back(static_cast<std::uint32_t>(local));
    listed_value.push_back(acc);
  }
  owned.listed = listed_index.size();
  listed_index.resize(std::min(room, job.count()));
  listed_value.resize(listed_index.size());
  owned.own.index = listed_index;
  owned.own.value = listed_value;
  const std::size_t most = std::min<std::size_t>(job.entries(), job.count());
  Outcome out{.index = std::vector<std::uint32_t>(k),
              .touched = std::vector<std::uint32_t>(most),
              .value = std::vector<float>(k),
              .sum = std::vector<float>(most),
              .result = {}};
  kernels::SumLists lists{out.index, out.value, out.touched, out.sum};
  const auto terms = job.terms();
  out.result = kernels::select_sums(with_workspace, owned, terms, bound, lists);
  out.touched.resize(lists.touched.size());
  out.sum.resize(lists.sum.size());
  return out;
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  EXPECT_EQ(got.result.finite, expected.result.finite);
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
  EXPECT_TRUE(got.touched == expected.touched);
  EXPECT_TRUE(same_bits(got.sum, expected.sum));
}

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
          const Job job(GetParam(), count, owners, base, every);
          if (job.count() == 0) continue;
          for (const std::size_t k : {job.count() / 100 + 1, job.count()}) {
            SelectBound unused;
            const Outcome expected = run(job, {.place = Place::reference}, k, unused);
            for (const int threads : {1, 3}) {
              SelectBound bound;
              for (int step = 0; step < 3; ++step) {  // none, carried, carried
                expect_equal(run(job, {.threads = threads}, k, bound), expected);
              }
              bound.bound *= 4;
              expect_equal(run(job, {.threads = threads}, k, bound), expected);
              bound.bound = 0;
              expect_equal(run(job, {.threads = threads}, k, bound, 3), expected);
            }
          }
        }
      }
    }
  }
}

TEST(SelectSumsBound, IsLearntSoThatTheNextStepReadsOnlyWhatMatters) {
  const Job job(Input::normal, 300000, 3, 0, 50);
  SelectBound bound;
  EXPECT_EQ(run(job, {}, 1000, bound).result.passes, 2u);
  for (int step = 0; step < 5; ++step) {
    const auto result = run(job, {}, 1000, bound).result;
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
  const std::vector<SparseView> terms = {{index, big}, {}, {index, minus}};
  for (const Place place : {Place::reference, Place::cpu}) {
    Workspace workspace;
    std::vector<std::uint32_t> touched(4), chosen(1);
    std::vector<float> sum(4), value(1);
    kernels::SumLists out{chosen, value, touched, sum};
    SelectBound bound;
    const OwnedSums owned{.own = {&partition, 1, 0}, .residual = residual, .count = 64, .most = 64};
    EXPECT_TRUE(
        kernels::select_sums({.place = place, .workspace = &workspace}, owned, terms, bound, out)
            .finite);
    ASSERT_EQ(out.sum.size(), 2u);
    EXPECT_EQ(out.sum[0], 0);
    EXPECT_EQ(out.sum[1], 16);
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
  const std::vector<SparseView> terms = {{}, {index, huge}};
  for (const Place place : {Place::reference, Place::cpu}) {
    Workspace workspace;
    std::vector<std::uint32_t> touched(1), chosen = {9, 9};
    std::vector<float> sum(1), value = {1, 1};
    kernels::SumLists out{chosen, value, touched, sum};
    SelectBound bound;
    const OwnedSums owned{.own = {&partition, 0, 0}, .residual = residual, .count = 64, .most = 64};
    EXPECT_FALSE(
        kernels::select_sums({.place = place, .workspace = &workspace}, owned, terms, bound, out)
            .finite);
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
  kernels::SumLists out{chosen, value, {}, {}};
  SelectBound bound;
  const OwnedSums owned{.own = {&partition, 0, 0}, .residual = residual, .count = 64, .most = 64};
  const std::vector<SparseView> two(2), three(3);
  EXPECT_THROW(kernels::select_sums({.workspace = &workspace}, owned, two, bound, out), UsageError);
  out = {std::span(chosen).first(1), std::span(value).first(1), {}, {}};
  EXPECT_THROW(kernels::select_sums({.workspace = &workspace}, owned, three, bound, out),
               UsageError);
  EXPECT_THROW(kernels::select_sums({}, owned, two, bound, out), UsageError);
}

}  // namespace
}  // namespace winnow::tests
