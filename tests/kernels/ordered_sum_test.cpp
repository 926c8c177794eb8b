// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>
#include <winnow/error.hpp>

#include "lab/reference/place.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/around.hpp"
#include "tests/kernels/cases/add_cases.hpp"
#include "tests/kernels/cases/terms_on_place.hpp"
#include "tests/kernels/float_modes.hpp"

namespace winnow::tests {
namespace {

using kernels::PlacedTerms;
using kernels::Term;

/// Values whose sums round, so that another order of addition gives other bits; denormals and
/// negative zeros among them.
float awkward_value(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return -0.0F;
    case 1:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7fffff));
    case 2:
      return 1e8F;
    case 3:
      return -1e8F;
    default:
      return static_cast<float>(random()) / 3e9F - 0.7F;
  }
}

/// `number` lists of positions from `base` on.
std::vector<SumList> awkward_lists(std::size_t number, Support support, std::uint32_t count,
                                   std::uint32_t base = 0) {
  std::vector<SumList> lists(number);
  for (std::uint32_t p = 0; p < number; ++p) {
    std::mt19937 random(p + 77);
    lists[p].index = make_support(support, count, p);
    lists[p].value.resize(lists[p].index.size());
    for (float& v : lists[p].value) v = awkward_value(random);
    for (std::uint32_t& i : lists[p].index) i += base;
  }
  return lists;
}

/// Positions [begin, end) of a sum.
struct Range {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t size() const { return end - begin; }
};

struct Sum {
  std::vector<float> sum;
  bool finite = true;
};

/// Sums terms in the memory of exec.place. The memory around the sum must stay as it is.
Sum sum_of(const Exec& exec, const PlacedTerms& terms, Range range, float factor,
           bool sum_is_zero) {
  const std::vector<float> before(range.size() + 2 * kAround, sum_is_zero ? 0.0F : 5.0F);
  OnPlace<float> there(exec, before);
  OnPlace<std::uint32_t> not_finite(exec, 1);
  kernels::ordered_sum(exec, {.terms = terms,
                              .sums = kernels::alone({inside(there.span()), range.begin}),
                              .factor = factor,
                              .not_finite = not_finite.data(),
                              .after_accumulate = sum_is_zero});
  std::vector<float> all = there.download();
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + kAround, before.begin()));
  EXPECT_TRUE(std::equal(all.end() - kAround, all.end(), before.begin()));
  const auto sum = inside(std::span(all));
  return {{sum.begin(), sum.end()}, not_finite.download()[0] == 0};
}

Sum sum_of(const Exec& exec, std::span<const SumList> lists, Range range, float factor,
           bool sum_is_zero) {
  const TermsOnPlace terms(exec, lists);
  return sum_of(exec, {terms.span()}, range, factor, sum_is_zero);
}

Sum sum_by_reference(std::span<const SumList> lists, Range range, float factor) {
  return sum_of({.place = lab::kReference}, lists, range, factor, false);
}

/// Sums lists into zeros, over a range of their positions.
void expect_lists_equal_reference(const Exec& exec, std::span<const SumList> lists, Range range,
                                  float factor, const Sum& expected) {
  const Sum got = sum_of(exec, lists, range, factor, true);
  EXPECT_EQ(got.finite, expected.finite);
  EXPECT_TRUE(same_bits(got.sum, expected.sum));
}

TEST(OrderedSum, EqualsReference) {
  for_each_body([](const Exec& exec) {
    expect_all_sums_equal_reference([&](std::span<const SumList> lists, std::uint64_t begin,
                                        std::span<float> sum, float factor) {
      const Sum got = sum_of(exec, lists, {begin, begin + sum.size()}, factor, false);
      std::ranges::copy(got.sum, sum.begin());
      return got.finite;
    });
  });
}

TEST(OrderedSum, OfHalvesIsRoundedOnce) {
  for_each_body([](const Exec& exec) {
    for (const bool is_zero : {false, true}) {
      expect_half_sums_equal_rounded_ones([&](const HalfSum& half) {
        const auto& [lists, begin, sum, factor, kept, keeper] = half;
        const Workspace::Scope scope(kernels::scratch_of(exec));
        const std::vector<std::uint16_t> before(sum.size() + 2 * kAround, is_zero ? 0 : 0x4242);
        OnPlace<std::uint16_t> there(exec, before);
        OnPlace<std::uint32_t> not_finite(exec, 1), too_large(exec, 1);
        OnPlace<float> residual(exec, std::vector<float>(kept.begin(), kept.end()));
        const TermsOnPlace terms(exec, lists);
        const auto halves = inside(there.span());
        const kernels::PlacedSpan elements{{halves.data(), halves.size(), sum.type()}, begin};
        const kernels::PlacedSpan rests{residual.span(), begin};
        kernels::OrderedSumJob job{.terms = {terms.span()},
                                   .sums = kernels::alone(elements),
                                   .factor = factor,
                                   .not_finite = not_finite.data(),
                                   .after_accumulate = is_zero,
                                   .too_large = too_large.data()};
        kernels::ordered_sum(exec, job);
        job.rests = {kernels::alone(rests), keeper, too_large.data()};
        kernels::ordered_sum(exec, job);
        std::ranges::copy(residual.download(), kept.begin());
        std::vector<std::uint16_t> all = there.download();
        std::ranges::copy(inside(std::span(all)), sum.halves().begin());
        std::ranges::fill(inside(std::span(all)), before[0]);
        EXPECT_EQ(all, before);
        return SumSaid{not_finite.download()[0] != 0, too_large.download()[0] != 0};
      });
    }
  });
}

/// Every other time the caller says that the sum is zero; only sums of lists alone can use that.
TEST(OrderedSum, OfCodedTermsEqualsReference) {
  for_each_body([](const Exec& exec) {
    bool is_zero = false;
    expect_coded_sums_equal_reference([&](std::span<const SumList> lists, std::uint64_t begin,
                                          std::span<float> sum, float factor) {
      is_zero = !is_zero;
      const Sum got = sum_of(exec, lists, {begin, begin + sum.size()}, factor, is_zero);
      std::ranges::copy(got.sum, sum.begin());
      return got.finite;
    });
  });
}

/// The sum leaves out the lists' entries before the range and behind it.
TEST(OrderedSum, OfListsIntoZerosEqualsReference) {
  for_each_body([](const Exec& exec) {
    for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 4095U, 4097U}) {
      for (const Support support : kSupports) {
        for (const std::size_t number : {1U, 2U, 4U, 7U}) {
          SCOPED_TRACE(describe(support, count) + ", lists " + std::to_string(number));
          const std::uint32_t base = count % 2 == 0 ? 0 : 4'000'000'000U;
          const std::vector<SumList> lists = awkward_lists(number, support, count, base);
          const std::uint64_t end = std::uint64_t{base} + count;
          for (const Range range : {Range{base, end}, Range{base + count / 3, end - count / 3}}) {
            for (const float factor : {1.0F, 1.0F / 3}) {
              expect_lists_equal_reference(exec, lists, range, factor,
                                           sum_by_reference(lists, range, factor));
            }
          }
        }
      }
    }
  });
}

/// The sums have several tiles, each with entries for several threads, and more lists than a tile
/// remembers.
TEST(OrderedSum, OfLargeListsIntoZerosEqualsReference) {
  struct Case {
    std::vector<SumList> lists;
    Range range;
    Sum expected;
  };
  std::vector<Case> cases;
  const auto make = [&](std::size_t number, Support support, std::size_t count) {
    const auto positions = static_cast<std::uint32_t>(many(count));
    Case& c = cases.emplace_back();
    c.lists = awkward_lists(number, support, positions, 9);
    c.range = {positions / 5, 9 + positions - positions / 7};
    c.expected = sum_by_reference(c.lists, c.range, 0.1F);
  };
  for_each_body([&](const Exec& exec) {
    if (cases.empty()) {
      make(1, Support::dense, kLargeSize);
      make(2, Support::dense, kLargeSize);
      make(4, Support::random, kLargeSize);
      make(7, Support::clustered, kLargeSize);
      make(70, Support::random, (1U << 17) + 5);
    }
    for (const Case& c : cases) {
      SCOPED_TRACE(c.lists.size());
      expect_lists_equal_reference(exec, c.lists, c.range, 0.1F, c.expected);
    }
  });
}

TEST(OrderedSum, OfManySumsEqualsReference) {
  for (const std::size_t number : {1U, 2U, 4U}) {
    for (const bool whole : {false, true}) {
      for (const bool are_zero : {false, true}) {
        ManySums expected(are_zero ? 0.0F : 5.0F);
        const std::vector<SumList> lists = terms_for(expected, number, whole);
        const TermsOnPlace by_reference({.place = lab::kReference}, lists);
        std::vector<float> before = expected.memory;
        const auto sum = [&](const Exec& exec, std::span<const kernels::PlacedSpan> spans,
                             const TermsOnPlace& terms, std::uint32_t* not_finite) {
          kernels::ordered_sum(exec, {.terms = {terms.span()},
                                      .sums = kernels::place(exec, spans),
                                      .factor = 1.0F / 3,
                                      .not_finite = not_finite,
                                      .after_accumulate = are_zero});
        };
        std::uint32_t said = 0;
        sum({.place = lab::kReference}, expected.spans, by_reference, &said);
        for_each_body([&](const Exec& exec) {
          SCOPED_TRACE(testing::Message() << number << " lists, " << whole << ", " << are_zero);
          const Workspace::Scope scope(kernels::scratch_of(exec));
          OnPlace<float> there(exec, before);
          OnPlace<std::uint32_t> not_finite(exec, 1);
          const TermsOnPlace terms(exec, lists);
          const auto spans = expected.in(there.span());
          sum(exec, spans, terms, not_finite.data());
          EXPECT_TRUE(same_bits(there.download(), expected.memory));
          EXPECT_EQ(not_finite.download()[0], said);
        });
      }
    }
  }
}

/// Where a term is not finite between the sums, or in one of them.
TEST(OrderedSum, LooksOnlyAtWhatItWrites) {
  const float infinite = std::numeric_limits<float>::infinity();
  for_each_body([&](const Exec& exec) {
    for (const std::uint32_t at : {70U, 127U, 128U, 199U}) {
      const Workspace::Scope scope(kernels::scratch_of(exec));
      std::vector<float> whole(200);
      whole[at] = infinite;
      const std::vector<SumList> terms = {{{at}, {infinite}}, {{}, whole}};
      for (const std::size_t first : {0U, 1U}) {
        const TermsOnPlace there(exec, std::span(terms).subspan(first, 1));
        OnPlace<float> sum(exec, 200);
        OnPlace<std::uint32_t> not_finite(exec, 1);
        const std::vector<kernels::PlacedSpan> spans = {{sum.span().first(70), 0},
                                                        {sum.span().subspan(128), 128}};
        kernels::ordered_sum(
            exec, {.terms = {there.span()},
                   .sums = kernels::place(exec, std::span<const kernels::PlacedSpan>(spans)),
                   .not_finite = not_finite.data()});
        EXPECT_EQ(not_finite.download()[0], at >= 128 ? 1U : 0U) << at;
        EXPECT_EQ(sum.download()[at], at >= 128 ? infinite : 0.0F);
      }
    }
  });
}

/// Checks the declaration's formula, element by element, without the reference body.
TEST(OrderedSum, IsTheDeclaredFormula) {
  const std::uint32_t count = 40'000;
  std::vector<SumList> terms = awkward_lists(4, Support::random, count);
  for (const bool are_lists : {true, false}) {
    if (!are_lists) terms.push_back({.index = {}, .value = make_input(Input::cauchy, count, 3)});
    std::vector<float> expected(count);
    for (const SumList& term : terms) {
      for (std::uint32_t j = 0; j < term.value.size(); ++j) {
        expected[term.index.empty() ? j : term.index[j]] += term.value[j];
      }
    }
    for (float& x : expected) x *= 0.25F;
    for_each_body([&](const Exec& exec) {
      for (const bool is_zero : {false, true}) {
        EXPECT_TRUE(same_bits(sum_of(exec, terms, {0, count}, 0.25F, is_zero).sum, expected));
      }
    });
  }
}

/// Each rank that names a position sends a multiple of its number: every sum has a closed form.
TEST(OrderedSum, HasClosedForm) {
  const std::uint32_t count = 5000;
  for (const std::uint32_t ranks : {1U, 2U, 4U, 7U}) {
    std::vector<SumList> lists(ranks);
    for (std::uint32_t p = 0; p < ranks; ++p) {
      for (std::uint32_t i = p; i < count; i += p + 1) {
        lists[p].index.push_back(i);
        lists[p].value.push_back(static_cast<float>(i * (p + 1)));
      }
    }
    for_each_body([&](const Exec& exec) {
      const Sum got = sum_of(exec, lists, {0, count}, 0.5F, true);
      EXPECT_TRUE(got.finite);
      for (std::uint32_t i = 0; i < count; ++i) {
        std::uint32_t weight = 0;
        for (std::uint32_t p = 0; p < ranks; ++p) {
          weight += i >= p && (i - p) % (p + 1) == 0 ? p + 1 : 0;
        }
        ASSERT_EQ(got.sum[i], static_cast<float>(i * weight) / 2) << i;
      }
    });
  }
}

TEST(OrderedSum, AddsInTheOrderOfTerms) {
  const SumList big{{}, std::vector<float>(100, 1e8F)}, minus{{}, std::vector<float>(100, -1e8F)};
  const SumList small{{}, std::vector<float>(100, 1.0F)};
  for_each_body([&](const Exec& exec) {
    const std::vector<SumList> last = {big, minus, small}, first = {small, big, minus};
    EXPECT_EQ(sum_of(exec, last, {0, 100}, 1, false).sum[50], 1.0F);
    EXPECT_EQ(sum_of(exec, first, {0, 100}, 1, false).sum[50], 0.0F);
  });
}

TEST(OrderedSum, SaysWhetherSumsAreFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMax = std::numeric_limits<float>::max();
  struct Case {
    float first, second, factor;
    bool finite;
  };
  const Case cases[] = {{0, kInf, 1, false},       {0, -kInf, 1, false},   {0, kNan, 1, false},
                        {kMax, kMax, 1, false},    {kInf, 1, 1, false},    {kInf, -kInf, 1, false},
                        {kMax, 0, 1, true},        {-kMax, kMax, 1, true}, {kMax, 0, 2, false},
                        {kMax, kMax, 0.5F, false}, {0, kInf, 0, false},    {1, 1, 0, true}};
  const std::uint32_t count = 70'000;
  std::vector<SumList> lists(2);
  for (SumList& list : lists) {
    for (std::uint32_t i = 0; i < count; i += 7) list.index.push_back(i);
    list.value.resize(list.index.size());
  }
  for_each_body([&](const Exec& exec) {
    for (const Case& c : cases) {
      for (const std::size_t entry :
           {std::size_t{0}, std::size_t{6000}, lists[0].index.size() - 1}) {
        SCOPED_TRACE(testing::Message() << c.first << " + " << c.second << ", times " << c.factor
                                        << ", entry " << entry);
        lists[0].value[entry] = c.first;
        lists[1].value[entry] = c.second;
        for (const bool is_zero : {false, true}) {
          EXPECT_EQ(sum_of(exec, lists, {0, count}, c.factor, is_zero).finite, c.finite);
        }
        lists[0].value[entry] = c.first + c.second;
        EXPECT_EQ(sum_of(exec, std::span(lists).first(1), {0, count}, c.factor, true).finite,
                  c.finite);
        lists[0].value[entry] = lists[1].value[entry] = 0;
      }
    }
  });
}

/// Few terms and many, placed once or not at all.
TEST(OrderedSum, PlacedTermsServeSeveralSums) {
  for (const std::size_t number : {3U, 16U, 17U, 100U}) {
    const std::vector<SumList> lists = make_lists(number, 9000, Input::cauchy);
    const Range ranges[] = {{0, 5000}, {5000, 9000}};
    const Sum expected[] = {sum_by_reference(lists, ranges[0], 0.5F),
                            sum_by_reference(lists, ranges[1], 0.5F)};
    for_each_body([&](const Exec& exec) {
      const TermsOnPlace terms(exec, lists);
      for (const PlacedTerms& placed :
           {PlacedTerms{terms.span()}, kernels::place_terms(exec, terms.span()),
            kernels::place_terms_to_sum(exec, terms.span())}) {
        for (const int half : {0, 1}) {
          const Sum got = sum_of(exec, placed, ranges[half], 0.5F, false);
          EXPECT_TRUE(same_bits(got.sum, expected[half].sum)) << number << " terms";
        }
      }
    });
  }
}

TEST(OrderedSum, NeedsNoWordForItsAnswer) {
  for_each_body([](const Exec& exec) {
    OnPlace<float> huge(exec, std::vector<float>(100, 3e38F)), sum(exec, 100);
    const std::vector<Term> terms(2, {.value = huge.span()});
    kernels::ordered_sum(exec, {.terms = {terms}, .sums = kernels::alone({sum.span()})});
    EXPECT_EQ(sum.download()[99], std::numeric_limits<float>::infinity());
  });
}

TEST(OrderedSum, RefusesTermsOfWrongSizes) {
  std::vector<float> values(100), sum(100);
  const std::vector<std::uint32_t> index(99);
  const std::vector<Term> whole = {{.value = values}};
  const std::vector<Term> list = {{.index = index, .value = values}};
  EXPECT_THROW(kernels::ordered_sum({}, {.terms = {whole}, .sums = kernels::alone({sum, 1})}),
               UsageError);
  const std::span<float> all(sum);
  const auto refuse = [&](std::uint64_t first, std::uint64_t second) {
    const std::vector<kernels::PlacedSpan> spans = {{all.first(10), first}, {all.last(10), second}};
    EXPECT_THROW(kernels::ordered_sum({}, {.sums = {spans, spans.data()}}), UsageError);
  };
  refuse(64, 0);
  refuse(0, 10);
  refuse(0, 9);
  EXPECT_THROW(kernels::ordered_sum({}, {.terms = {list}, .sums = kernels::alone({sum})}),
               UsageError);
}

TEST(OrderedSum, KeepsDenormalsAndTheCallersMode) {
  const std::uint32_t count = 40'000;
  const float denormal = std::numeric_limits<float>::denorm_min();
  std::vector<SumList> lists(2, make_list(Support::dense, count, 0, Input::all_zero));
  for (SumList& list : lists) std::ranges::fill(list.value, denormal);
  for_each_body([&](const Exec& exec) {
    const TermsOnPlace terms(exec, lists);
    for (const bool is_zero : {false, true}) {
      OnPlace<float> sum(exec, count);
      {
        const FlushToZero mode;
        const std::uint32_t before = FlushToZero::read();
        kernels::ordered_sum(exec, {.terms = {terms.span()},
                                    .sums = kernels::alone({sum.span()}),
                                    .after_accumulate = is_zero});
        EXPECT_EQ(FlushToZero::read(), before);
      }
      EXPECT_EQ(std::ranges::count(sum.download(), 2 * denormal), count);
    }
  });
}

}  // namespace
}  // namespace winnow::tests
