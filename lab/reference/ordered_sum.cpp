// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <cmath>
#include <vector>

#include "kernels/arithmetic/element.hpp"

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
  if (job.rests.are_none()) return;
  std::vector<std::vector<float>> values;
  for (const Term& term : job.terms.host) values.push_back(values_of(exec, term));
  for (const PlacedSpan& sum : job.sums.host) {
    std::vector<float> all(sum.elements.size());
    for (std::size_t p = 0; p < values.size(); ++p) {
      const Term& term = job.terms.host[p];
      for (std::uint64_t j = 0; j < values[p].size(); ++j) {
        const std::uint64_t position = term.is_list() ? term.index[j] : j;
        if (position >= sum.base && position < sum.end()) all[position - sum.base] += values[p][j];
      }
    }
    const ElementRange range = range_of(sum.elements.type());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float element = job.factor == 1 ? all[i] : all[i] * job.factor;
      const bool exceeded = range.exceeded_by(element);
      if (!job.rests.empty()) {
        if (!exceeded || !job.rests.keeper.keeps(sum.base + i)) continue;
        const auto at = static_cast<std::size_t>(&sum - job.sums.host.data());
        float& residual = job.rests.residuals.host[at].elements.floats()[i];
        residual = job.rests.keeper.add_rest(residual, element, range);
        continue;
      }
      const bool finite = std::isfinite(write_element(sum.elements, i, range.clip(element)));
      if (!finite && job.not_finite != nullptr) *job.not_finite = 1;
      if (exceeded && job.too_large != nullptr) *job.too_large = 1;
    }
  }
}

}  // namespace winnow::kernels::reference
