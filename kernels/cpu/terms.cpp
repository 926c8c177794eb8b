// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/terms.hpp"

#include <algorithm>

namespace winnow::kernels::cpu {

/// Replaces coded lists by decoded ones.
void place_terms(const Exec& exec, PlacedTerms& terms, std::uint64_t most) {
  const auto is_coded_list = [](const Term& term) { return term.is_list() && term.is_coded(); };
  if (most == 0 && std::ranges::none_of(terms.host, is_coded_list)) return;
  const auto decoded = exec.workspace->take<Term>(terms.host.size());
  std::ranges::copy(terms.host, decoded.begin());
  for (Term& term : decoded) {
    const bool is_coded = is_coded_list(term);
    const auto room = exec.workspace->take<float>(std::max(most, is_coded ? term.count : 0));
    if (!is_coded) continue;
    const auto value = room.first(term.count);
    dequantize(exec, term.format, term.count, term.coded, 0, value);
    term = {.index = term.index, .value = value};
  }
  terms.host = decoded;
}

}  // namespace winnow::kernels::cpu
