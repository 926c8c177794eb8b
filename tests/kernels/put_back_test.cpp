// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/put_back.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/add_cases.hpp"
#include "tests/kernels/cases/terms_on_place.hpp"

namespace winnow::tests {
namespace {

struct Case {
  Case(Support support, std::uint32_t count, Input input)
      : list(make_list(support, count, 3, input)),
        before(make_input(Input::normal, count, 4)),
        after(before) {
    for (std::size_t j = 0; j < list.index.size(); ++j) {
      after[list.index[j]] += list.value[j];
      list.index[j] += kBase;
    }
  }
  void expect_after(const Exec& exec) const {
    const TermsOnPlace terms(exec, {&list, 1});
    OnPlace<float> sum(exec, before);
    kernels::put_back(exec, sum.span(), kBase, terms.view(0));
    EXPECT_TRUE(same_bits_or_nan(sum.download(), after));
  }
  static constexpr std::uint32_t kBase = 1000;
  SumList list;
  std::vector<float> before, after;
};

TEST(PutBack, AddsWhatTheListSays) {
  for_each_body([](const Exec& exec) {
    for (const Input input : {Input::cauchy, Input::denormal, Input::not_finite}) {
      for (const std::uint32_t count : {0U, 1U, 31U, 32U, 33U, 4095U, 4097U}) {
        for (const Support support : kSupports) {
          SCOPED_TRACE(describe(support, count));
          Case(support, count, input).expect_after(exec);
        }
      }
    }
  });
}

TEST(PutBack, OfALargeListAddsWhatItSays) {
  std::vector<Case> cases;
  for_each_body([&](const Exec& exec) {
    for (const Support support : kSupports) {
      if (cases.size() == std::size(kSupports)) break;
      cases.emplace_back(support, static_cast<std::uint32_t>(many(kLargeSize)), Input::cauchy);
    }
    for (const Case& c : cases) c.expect_after(exec);
  });
}

TEST(PutBack, RefusesAListOfWrongSizes) {
  std::vector<float> sum(3);
  const std::vector<std::uint32_t> index(2);
  EXPECT_THROW(kernels::put_back({}, sum, 0, {index, sum}), UsageError);
}

}  // namespace
}  // namespace winnow::tests
