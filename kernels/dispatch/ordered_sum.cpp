// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <string>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/partition.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "kernels/dispatch/expect_rests.hpp"

namespace winnow::kernels {

void ordered_sum(const Exec& exec, const OrderedSumJob& job) {
  std::uint64_t end = 0;
  for (const PlacedSpan& sum : job.sums.host) {
    WINNOW_EXPECTS(sum.base >= end, "sums must be disjoint, and ascend by position");
    WINNOW_EXPECTS(job.sums.host.size() == 1 || sum.base % Partition::kUnit == 0,
                   "several sums begin at multiples of " + std::to_string(Partition::kUnit));
    expect_gradient(sum.elements.type());
    end = sum.end();
  }
  for (const Term& term : job.terms.host) {
    WINNOW_EXPECTS(term.is_list() ? term.index.size() == term.size() : end <= term.size(),
                   "a term has a value for each index, or one for every position");
  }
  expect_rests_of(job.sums, job.rests);
  dispatch(exec, &Bodies::ordered_sum, job);
}

}  // namespace winnow::kernels
