// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void ordered_sum(const Exec& exec, const OrderedSumJob& job) {
  for (const Term& term : job.terms.host) {
    WINNOW_EXPECTS(term.is_list() ? term.index.size() == term.size()
                                  : job.begin + job.sum.size() <= term.size(),
                   "a term has a value for each index, or one for every position");
  }
  dispatch(exec, &Bodies::ordered_sum, job);
}

}  // namespace winnow::kernels
