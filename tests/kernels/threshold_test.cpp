// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Selection of sums by a bound: what reaches it, and nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/select_sums.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {
namespace {

using kernels::Partition;
using kernels::Term;

constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
constexpr float kBounds[] = {kSmallest, 0.75F, 2, std::numeric_limits<float>::max()};

struct Sums {
  std::vector<std::uint32_t> index, touched;
  std::vector<float> value, sum;
  bool finite = true;
};

/// Rank 1 of 3 keeps its sums of `acc`, one for each of its elements, and of what the others send.
Sums keep(const Partition& partition, std::span<const float> acc, std::span<const Term> terms,
          const Exec& given, float bound) {
  Workspace workspace;
  Exec exec = given;
  exec.workspace = &workspace;
  const std::uint64_t count = partition.local_count(1);
  std::vector<float> residual(partition.count());
  std::vector<std::uint32_t> listed_index;
  std::vector<float> listed_value;
  for (std::uint64_t i = 0; i < count; ++i) {
    residual[partition.position(1, i)] = acc[i];
    if (std::fabs(acc[i]) < bound) continue;
    listed_index.push_back(static_cast<std::uint32_t>(i));
    listed_value.push_back(acc[i]);
  }
  const kernels::SelectResult fed{.finite = true,
                                  .candidates = 0,
                                  .passes = 1,
                                  .listed = listed_index.size(),
                                  .listed_by = bound};
  kernels::OwnedSums owned{.own = {.partition = &partition, .self = 1},
                           .residual = residual,
                           .count = count,
                           .most = count};
  listed_index.resize(count);
  listed_value.resize(count);
  owned.own.index = listed_index;
  owned.own.value = listed_value;
  Sums sums{std::vector<std::uint32_t>(count), std::vector<std::uint32_t>(count),
            std::vector<float>(count), std::vector<float>(count)};
  std::uint64_t kept = 0, touched_count = 0;
  kernels::SelectResult result{};
  kernels::keep_sums(exec, {.owned = owned,
                            .fed = &fed,
                            .terms = {terms},
                            .out = {sums.index, sums.value, sums.touched, sums.sum},
                            .kept = &kept,
                            .touched_count = &touched_count,
                            .result = &result});
  sums.finite = result.finite;
  sums.index.resize(kept);
  sums.value.resize(kept);
  sums.touched.resize(touched_count);
  sums.sum.resize(touched_count);
  return sums;
}

class KeepSums : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, KeepSums,
                         testing::Values(Input::normal, Input::all_equal, Input::all_zero,
                                         Input::mostly_zero, Input::denormal, Input::ties));

// A sum of zero, and one below the bound, is not kept, whoever named it.
TEST_P(KeepSums, KeepsWhatReachesTheBound) {
  for (const std::uint64_t positions : {65U, 1000U, 40001U}) {
    const Partition partition(3, positions);
    const std::uint64_t count = partition.local_count(1);
    const std::vector<float> acc = make_input(GetParam(), count, 4);
    for (const unsigned every : {1U, 30U}) {
      std::vector<std::vector<std::uint32_t>> index(3);
      std::vector<std::vector<float>> value(3);
      std::mt19937 random(every);
      for (const std::size_t rank : {0U, 2U}) {
        for (std::uint32_t i = 0; i < count; ++i) {
          if (random() % every == 0) index[rank].push_back(i);
        }
        value[rank] = make_input(GetParam(), index[rank].size(), 5);
      }
      for (std::size_t j = 0; j < index[2].size(); ++j) {  // some cancel
        if (j % 3 == 0) value[2][j] = -acc[index[2][j]];
      }
      const std::vector<Term> terms = {
          {.index = index[0], .value = value[0]}, {}, {.index = index[2], .value = value[2]}};
      for (const float bound : kBounds) {
        SCOPED_TRACE(testing::Message() << positions << " positions, bound " << bound);
        Sums right;
        std::vector<float> sum(count, 0.0F);
        std::vector<bool> named(count);
        for (const std::size_t rank : {0U, 1U, 2U}) {
          for (std::uint64_t i = 0; rank == 1 && i < count; ++i) sum[i] += acc[i];
          for (std::size_t j = 0; j < index[rank].size(); ++j) {
            sum[index[rank][j]] += value[rank][j];
            named[index[rank][j]] = true;
          }
        }
        for (std::uint32_t i = 0; i < count; ++i) {
          if (named[i]) {
            right.touched.push_back(i);
            right.sum.push_back(sum[i]);
          }
          if (std::fabs(sum[i]) < bound) continue;
          right.index.push_back(i);
          right.value.push_back(sum[i]);
        }
        for (const Exec& exec : {Exec{.place = Place::reference}, Exec{}, Exec{.threads = 3}}) {
          const Sums got = keep(partition, acc, terms, exec, bound);
          EXPECT_TRUE(got.finite);
          EXPECT_EQ(got.index, right.index);
          EXPECT_EQ(bits_of(got.value), bits_of(right.value));
          EXPECT_EQ(got.touched, right.touched);
          EXPECT_EQ(bits_of(got.sum), bits_of(right.sum));
        }
      }
    }
  }
}

TEST(KeepSumsOverflow, IsToldAndNothingIsKept) {
  const Partition partition(3, 1000);
  const std::vector<float> acc(partition.local_count(1), 3e38F);
  const std::vector<std::uint32_t> index = {9};
  const std::vector<float> huge = {3e38F};
  const std::vector<Term> terms = {{}, {}, {.index = index, .value = huge}};
  for (const Place place : {Place::reference, Place::cpu}) {
    const Sums got = keep(partition, acc, terms, {.place = place}, 1);
    EXPECT_FALSE(got.finite);
    EXPECT_TRUE(got.index.empty());
    EXPECT_TRUE(got.value.empty());
  }
}

}  // namespace
}  // namespace winnow::tests
