// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace reference {
bool ordered_sum(const Exec& exec, std::span<const Term> terms, std::uint64_t begin,
                 std::span<float> sum, float factor);
}
namespace cpu {
bool ordered_sum(const Exec& exec, std::span<const Term> terms, std::uint64_t begin,
                 std::span<float> sum, float factor);
}

bool ordered_sum(const Exec& exec, std::span<const Term> terms, std::uint64_t begin,
                 std::span<float> sum, float factor) {
  for (const Term& term : terms) {
    const std::uint64_t all = term.coded.empty() ? term.value.size() : term.count;
    WINNOW_EXPECTS(
        term.index.size() == term.value.size() || (term.index.empty() && begin + sum.size() <= all),
        "a term has a value for each index, or one for every position");
  }
  return dispatch_on_host(exec, reference::ordered_sum, cpu::ordered_sum, NoBody{}, terms, begin,
                          sum, factor);
}

}  // namespace winnow::kernels
