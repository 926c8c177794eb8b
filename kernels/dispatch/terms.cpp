// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/terms.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

PlacedTerms place_terms(const Exec& exec, std::span<const Term> terms) {
  PlacedTerms placed{.host = terms};
  if (exec.place == Place::cuda) dispatch(exec, &Bodies::place_terms, placed);
  return placed;
}

PlacedTerms place_terms_to_sum(const Exec& exec, std::span<const Term> terms) {
  if (terms.size() <= kTermsInALaunch) return {.host = terms};
  return place_terms(exec, terms);
}

}  // namespace winnow::kernels
