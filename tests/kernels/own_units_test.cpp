// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The ordered sum.
#include <gtest/gtest.h>

#include <winnow/error.hpp>

#include "kernels/ordered_sum.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {
namespace {

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
