// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Selection by a bound, of gradients and of sums: what reaches it, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <winnow/error.hpp>

#include "kernels/feedback_select.hpp"
#include "kernels/select_sums.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

using kernels::Partition;
using kernels::Term;

constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
constexpr float kBounds[] = {kSmallest, 0.75F, 2, std::numeric_limits<float>::max()};

/// A parameter from position 6400 on, of which rank 1 owns some units where there are owners.
struct Job {
  Job(Input input, std::size_t count, std::uint32_t number_of_owners)
      : gradient(make_input(input, count, 1)),
        residual(make_input(Input::mostly_zero, count, 2)),
        owners(number_of_owners),
        partition(std::max(owners, 1U), kBase + count) {}

  static constexpr std::uint64_t kBase = 6400;
  static constexpr float kDecay = 0.5F;

  bool owns(std::size_t i) const {
    return owners > 0 && partition.owner_of_unit((kBase + i) / Partition::kUnit) == 1;
  }

  std::vector<float> gradient, residual;
  std::uint32_t owners;  // 0: none
  Partition partition;
};

struct Outcome {
  std::vector<float> gradient, residual, value, own_value;
  std::vector<std::uint32_t> index, own_index;
  bool finite = true;

  friend bool operator==(const Outcome& a, const Outcome& b) {
    return bits_of(a.gradient) == bits_of(b.gradient) &&
           bits_of(a.residual) == bits_of(b.residual) && bits_of(a.value) == bits_of(b.value) &&
           bits_of(a.own_value) == bits_of(b.own_value) && a.index == b.index &&
           a.own_index == b.own_index && a.finite == b.finite;
  }
};

Outcome run(const Job& job, Exec exec, float bound) {
  Workspace workspace;
  exec.workspace = &workspace;
  const std::size_t count = job.gradient.size(), own_count = job.owners > 0 ? count : 0;
  Outcome out{.gradient = job.gradient,
              .residual = job.residual,
              .value = std::vector<float>(count),
              .own_value = std::vector<float>(own_count),
              .index = std::vector<std::uint32_t>(count),
              .own_index = std::vector<std::uint32_t>(own_count)};
  kernels::OwnUnits own;
  if (job.owners > 0) {
    own = {.partition = &job.partition,
           .self = 1,
           .base = Job::kBase,
           .bound = bound,
           .index = out.own_index,
           .value = out.own_value};
  }
  kernels::SelectResult result{};
  std::uint64_t kept = 0;
  kernels::feedback_threshold(exec, {.spans = {out.gradient, out.residual, Job::kDecay, own},
                                     .bound = bound,
                                     .index = out.index,
                                     .value = out.value,
                                     .kept = &kept,
                                     .result = &result});
  EXPECT_EQ(kept, result.candidates);
  out.finite = result.finite;
  out.index.resize(result.candidates);
  out.value.resize(result.candidates);
  out.own_index.resize(result.listed);
  out.own_value.resize(result.listed);
  return out;
}

/// What the declaration says, from the inputs alone.
Outcome expected(const Job& job, float bound) {
  Outcome out{.gradient = std::vector<float>(job.gradient.size()),
              .residual = job.residual,
              .value = {},
              .own_value = {},
              .index = {},
              .own_index = {}};
  for (std::size_t i = 0; i < job.gradient.size(); ++i) {
    const float carried = Job::kDecay * job.residual[i];
    const float acc = job.gradient[i] + carried;
    out.finite = out.finite && std::isfinite(acc);
    if (!std::isfinite(acc)) continue;
    out.residual[i] = acc;
    if (std::fabs(acc) < bound) continue;
    if (job.owns(i)) {
      out.own_index.push_back(static_cast<std::uint32_t>(job.partition.local(Job::kBase + i)));
      out.own_value.push_back(acc);
      continue;
    }
    out.residual[i] = 0;
    out.index.push_back(static_cast<std::uint32_t>(i));
    out.value.push_back(acc);
  }
  return out;
}

class Threshold : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, Threshold, testing::ValuesIn(kInputs));

TEST_P(Threshold, SelectsWhatReachesTheBound) {
  for (const std::size_t count : kSizes) {
    for (const std::uint32_t owners : {0U, 3U}) {
      const Job job(GetParam(), count, owners);
      for (const float bound : kBounds) {
        SCOPED_TRACE(testing::Message() << count << " of " << owners << ", bound " << bound);
        const Outcome right = expected(job, bound);
        EXPECT_TRUE(run(job, {.place = Place::reference}, bound) == right);
        for_each_target([&] {
          for (const int threads : {1, 3}) {
            EXPECT_TRUE(run(job, {.threads = threads}, bound) == right) << "threads " << threads;
          }
        });
      }
    }
  }
}

TEST(ThresholdContract, RefusesWrongShapes) {
  Workspace workspace;
  const Exec exec{.workspace = &workspace};
  std::vector<float> gradient(10), residual(10), value(10);
  std::vector<std::uint32_t> index(10);
  std::uint64_t kept = 0;
  kernels::SelectResult result{};
  const auto call = [&](float bound, std::size_t places) {
    kernels::feedback_threshold(exec, {.spans = {gradient, residual},
                                       .bound = bound,
                                       .index = std::span(index).first(places),
                                       .value = std::span(value).first(places),
                                       .kept = &kept,
                                       .result = &result});
  };
  EXPECT_THROW(call(0, 10), UsageError);
  EXPECT_THROW(call(1, 9), UsageError);
  kept = 1;
  EXPECT_THROW(call(1, 10), UsageError);
}

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
