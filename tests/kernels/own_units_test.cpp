// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Selection where this rank owns some positions, selection from values, and the ordered sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <winnow/error.hpp>

#include "kernels/cpu/select.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/reference/select.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/targets.hpp"

namespace winnow::tests {
namespace {

using kernels::Partition;
using kernels::SelectBound;

struct Job {
  std::vector<float> gradient, residual;
  float decay;
  Partition partition;
  std::uint32_t self;
  std::uint64_t base;
  std::size_t k;
};

struct Outcome {
  std::vector<float> gradient, residual;
  std::vector<std::uint32_t> index, own_index;
  std::vector<float> value, own_value;
  bool finite = true;
  std::uint64_t listed = 0;
};

constexpr float kOwnBound = 1.5f;

Outcome run(const Job& job, const Exec& exec, SelectBound& bound) {
  Workspace workspace;
  Exec with_workspace = exec;
  with_workspace.workspace = &workspace;
  Outcome out{.gradient = job.gradient,
              .residual = job.residual,
              .index = std::vector<std::uint32_t>(job.k),
              .own_index = std::vector<std::uint32_t>(job.partition.local_count(job.self)),
              .value = std::vector<float>(job.k),
              .own_value = std::vector<float>(job.partition.local_count(job.self))};
  const kernels::OwnUnits own{.partition = &job.partition,
                              .self = job.self,
                              .base = job.base,
                              .bound = kOwnBound,
                              .index = out.own_index,
                              .value = out.own_value};
  kernels::SelectResult result{};
  kernels::feedback_select(with_workspace, {.spans = {out.gradient, out.residual, job.decay, own},
                                            .index = out.index,
                                            .value = out.value,
                                            .state = &bound,
                                            .result = &result});
  out.finite = result.finite;
  out.listed = result.listed;
  EXPECT_LE(out.listed, out.own_index.size());
  out.own_index.resize(out.listed);
  out.own_value.resize(out.listed);
  return out;
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
  EXPECT_TRUE(same_bits(got.gradient, expected.gradient));
  EXPECT_TRUE(same_bits(got.residual, expected.residual));
  EXPECT_EQ(got.finite, expected.finite);
  EXPECT_TRUE(got.own_index == expected.own_index);
  EXPECT_TRUE(same_bits(got.own_value, expected.own_value));
}

/// What the contract says of own positions, from the inputs alone.
void expect_own_left_out(const Job& job, const Outcome& out) {
  std::size_t wrong = 0, listed = 0;
  for (std::size_t i = 0; i < job.gradient.size(); ++i) {
    const std::uint64_t position = job.base + i;
    const bool own = job.partition.owner_of_unit(position / 64) == job.self;
    if (!own) continue;
    const float carried = job.decay * job.residual[i];
    const float acc = job.gradient[i] + carried;
    const float kept = std::isfinite(acc) ? acc : job.residual[i];
    wrong += std::bit_cast<std::uint32_t>(out.residual[i]) != std::bit_cast<std::uint32_t>(kept);
    wrong += out.gradient[i] != 0;
    wrong += std::ranges::binary_search(out.index, static_cast<std::uint32_t>(i));
    if (!std::isfinite(acc) || std::fabs(acc) < kOwnBound) continue;
    ASSERT_LT(listed, out.own_index.size());
    wrong += out.own_index[listed] != job.partition.local(position);
    wrong += out.own_value[listed++] != acc;
  }
  EXPECT_EQ(listed, out.own_index.size());
  EXPECT_EQ(wrong, 0u);
}

std::uint64_t foreign_count(const Job& job) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < job.gradient.size(); ++i) {
    count += job.partition.owner_of_unit((job.base + i) / 64) != job.self;
  }
  return count;
}

class OwnUnits : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, OwnUnits, testing::ValuesIn(kInputs));

TEST_P(OwnUnits, DoNotCompeteAndKeepAcc) {
  for (const std::size_t count : {1u, 64u, 65u, 1000u, 13001u}) {
    for (const std::uint32_t owners : {1u, 2u, 3u, 7u}) {
      for (const std::uint64_t base : {0u, 64u, 6400u}) {
        Job job{make_input(GetParam(), count, 1),
                make_input(Input::normal, count, 2),
                0.9f,
                Partition(owners, base + count + 200),
                owners - 1,
                base,
                0};
        const std::uint64_t foreign = foreign_count(job);
        job.k = std::min<std::uint64_t>(foreign, foreign / 50 + 1);
        SelectBound unused;
        const Outcome expected = run(job, {.place = Place::reference}, unused);
        expect_own_left_out(job, expected);
        for_each_target([&] {
          for (const int threads : {1, 3}) {
            SelectBound bound;
            for (int step = 0; step < 2; ++step) {  // once sampled, once carried
              const Outcome got = run(job, {.threads = threads}, bound);
              expect_equal(got, expected);
            }
          }
        });
      }
    }
  }
}

TEST(OwnUnitsPasses, AMissedBoundDoesNotMoveThemTwice) {
  Job job{make_input(Input::normal, 50000, 3),
          make_input(Input::normal, 50000, 4),
          1,
          Partition(2, 50000),
          0,
          0,
          300};
  SelectBound unused;
  const Outcome expected = run(job, {.place = Place::reference}, unused);
  SelectBound bound{.bound = 4.5f, .margin = 0.03f, .k = 300};
  expect_equal(run(job, {}, bound), expected);
}

TEST(OwnUnitsPasses, TheSampleCountsOnlyWhatCompetes) {
  Job job{make_input(Input::normal, kLargeSize, 5),
          std::vector<float>(kLargeSize),
          1,
          Partition(2, kLargeSize),
          1,
          0,
          kLargeSize / 200};
  Workspace workspace;
  std::vector<std::uint32_t> index(job.k);
  std::vector<float> value(job.k);
  SelectBound bound;
  kernels::SelectResult result{};
  kernels::feedback_select({.workspace = &workspace},
                           {.spans = {job.gradient, job.residual, 1, {&job.partition, 1, 0}},
                            .index = index,
                            .value = value,
                            .state = &bound,
                            .result = &result});
  EXPECT_EQ(result.passes, 1u);
}

TEST(OwnUnitsList, SaysHowManyWhereRoomIsShort) {
  const std::size_t count = 20000;
  for (const int threads : {1, 3}) {
    std::vector<float> gradient(count, 2.0f), residual(count), value(10), listed_value(50);
    std::vector<std::uint32_t> index(10), listed_index(50);
    const Partition partition(2, count);
    Workspace workspace;
    SelectBound bound;
    kernels::SelectResult result{};
    kernels::feedback_select(
        {.threads = threads, .workspace = &workspace},
        {.spans = {gradient, residual, 1, {&partition, 0, 0, 1.0f, listed_index, listed_value}},
         .index = index,
         .value = value,
         .state = &bound,
         .result = &result});
    EXPECT_EQ(result.listed, partition.local_count(0));
  }
}

class SelectFrom : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, SelectFrom,
                         testing::Values(Input::normal, Input::cauchy, Input::all_equal,
                                         Input::all_zero, Input::ascending, Input::descending,
                                         Input::denormal, Input::ties));

TEST_P(SelectFrom, ValuesEqualsReferenceAndConserves) {
  for (const std::size_t count : {1u, 63u, 64u, 65u, 4097u, 70001u}) {
    const std::vector<float> values = make_input(GetParam(), count, 6);
    for (const std::size_t k : {std::size_t{1}, count / 100 + 1, count}) {
      Workspace workspace;
      std::vector<float> expected = values, expected_value(k);
      std::vector<std::uint32_t> expected_index(k);
      SelectBound unused;
      kernels::reference::select({.workspace = &workspace}, expected, unused, expected_index,
                                 expected_value);
      std::vector<float> together = expected;
      for (std::size_t j = 0; j < k; ++j) together[expected_index[j]] += expected_value[j];
      EXPECT_TRUE(std::ranges::equal(together, values));
      for_each_target([&] {
        SelectBound bound;
        for (const int threads : {1, 3, 1}) {
          std::vector<float> left = values, value(k);
          std::vector<std::uint32_t> index(k);
          kernels::cpu::select({.threads = threads, .workspace = &workspace}, left, bound, index,
                               value);
          EXPECT_TRUE(index == expected_index);
          EXPECT_TRUE(same_bits(value, expected_value));
          EXPECT_TRUE(same_bits(left, expected));
        }
      });
    }
  }
}

/// Terms of each form over [0, count).
struct Terms {
  explicit Terms(std::size_t count)
      : dense(make_input(Input::normal, count, 7)), words(count + 64) {
    for (std::uint32_t i = 0; i < count; i += 37) index.push_back(i);
    value = make_input(Input::cauchy, index.size(), 8);
    format = {.coding = &kernels::value_codings()[3], .block = 64};
    std::vector<float> values = make_input(Input::normal, count, 9);
    bytes = std::as_writable_bytes(std::span(words)).first(kernels::value_bytes(format, count));
    kernels::quantize({}, format, {}, values, bytes);
    list = {{.index = index, .value = value},
            {.format = format, .coded = bytes, .count = count},
            {.value = dense},
            {},  // a rank that says nothing
            {.index = index, .value = value}};
  }
  std::vector<std::uint32_t> index;
  std::vector<float> value, dense;
  std::vector<std::uint64_t> words;
  kernels::ValueFormat format;
  std::span<std::byte> bytes;
  std::vector<kernels::Term> list;
};

/// Whether all sums are finite.
bool ordered_sum(const Exec& exec, std::span<const kernels::Term> terms, std::uint64_t begin,
                 std::span<float> sum, float factor) {
  std::uint32_t not_finite = 0;
  kernels::ordered_sum(
      exec,
      {.terms = {terms}, .begin = begin, .sum = sum, .factor = factor, .not_finite = &not_finite});
  return not_finite == 0;
}

TEST(OrderedSum, EqualsReferenceInAnyRange) {
  for (const std::size_t count : {1u, 64u, 4095u, 4097u, 30000u}) {
    const Terms terms(count);
    for (const std::size_t begin : {std::size_t{0}, count / 128 * 64}) {
      for (const float factor : {1.0f, 0.25f}) {
        std::vector<float> expected(count - begin, 5.0f);
        EXPECT_TRUE(ordered_sum({.place = Place::reference}, terms.list, begin, expected, factor));
        for (const int threads : {1, 3}) {
          std::vector<float> sum(count - begin, 6.0f);
          EXPECT_TRUE(ordered_sum({.threads = threads}, terms.list, begin, sum, factor));
          EXPECT_TRUE(same_bits(sum, expected));
        }
      }
    }
  }
}

TEST(OrderedSum, AddsInTheOrderOfTerms) {
  const std::vector<float> big(100, 1e8f), minus(100, -1e8f), small(100, 1.0f);
  std::vector<float> sum(100);
  const std::vector<kernels::Term> last = {{.value = big}, {.value = minus}, {.value = small}};
  ordered_sum({}, last, 0, sum, 1);
  EXPECT_EQ(sum[50], 1.0f);
  const std::vector<kernels::Term> first = {{.value = small}, {.value = big}, {.value = minus}};
  ordered_sum({}, first, 0, sum, 1);
  EXPECT_EQ(sum[50], 0.0f);
}

TEST(OrderedSum, TellsOfInfinityAndRefusesShortTerms) {
  std::vector<float> huge(100, 3e38f), sum(100);
  const std::vector<kernels::Term> terms = {{.value = huge}, {.value = huge}};
  EXPECT_FALSE(ordered_sum({}, terms, 0, sum, 1));
  EXPECT_FALSE(ordered_sum({.place = Place::reference}, terms, 0, sum, 1));
  EXPECT_THROW(ordered_sum({}, terms, 1, sum, 1), UsageError);
}

}  // namespace
}  // namespace winnow::tests
