// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <cmath>
#include <vector>

namespace winnow::kernels::reference {

bool ordered_sum(const Exec& exec, std::span<const Term> terms, std::uint64_t begin,
                 std::span<float> sum, float factor) {
  for (float& element : sum) element = 0;
  for (const Term& term : terms) {
    if (!term.index.empty()) {
      for (std::size_t j = 0; j < term.index.size(); ++j) {
        if (term.index[j] < begin || term.index[j] - begin >= sum.size()) continue;
        sum[term.index[j] - begin] += term.value[j];
      }
    } else if (!term.coded.empty()) {
      std::vector<float> value(sum.size());
      dequantize(exec, term.format, term.count, term.coded, begin, value);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += value[i];
    } else if (!term.value.empty()) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += term.value[begin + i];
    }
  }
  bool finite = true;
  for (float& element : sum) {
    if (factor != 1) element *= factor;
    finite = finite && std::isfinite(element);
  }
  return finite;
}

}  // namespace winnow::kernels::reference
