// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <cmath>
#include <vector>

namespace winnow::kernels::reference {

namespace {

/// All values of a term.
std::vector<float> values_of(const Exec& exec, const Term& term) {
  if (!term.is_coded()) return {term.value.begin(), term.value.end()};
  std::vector<float> value(term.count);
  dequantize(exec, term.format, term.count, term.coded, 0, value);
  return value;
}

}  // namespace

void ordered_sum(const Exec& exec, const OrderedSumJob& job) {
  for (const PlacedSpan& sum : job.sums.host) {
    for (float& element : sum.elements) element = 0;
  }
  for (const Term& term : job.terms.host) {
    const std::vector<float> value = values_of(exec, term);
    for (const PlacedSpan& sum : job.sums.host) {
      for (std::uint64_t j = 0; j < value.size(); ++j) {
        const std::uint64_t position = term.is_list() ? term.index[j] : j;
        if (position >= sum.base && position < sum.end())
          sum.elements[position - sum.base] += value[j];
      }
    }
  }
  for (const PlacedSpan& sum : job.sums.host) {
    for (float& element : sum.elements) {
      if (job.factor != 1) element *= job.factor;
      if (!std::isfinite(element) && job.not_finite != nullptr) *job.not_finite = 1;
    }
  }
}

}  // namespace winnow::kernels::reference
