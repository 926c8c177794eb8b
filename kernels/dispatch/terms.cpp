// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/terms.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

PlacedTerms place_terms(const Exec& exec, std::span<const Term> terms, std::uint64_t most) {
  PlacedTerms placed{.host = terms};
  dispatch(exec, &Bodies::place_terms, placed, most);
  return placed;
}

PlacedTerms place_terms_to_sum(const Exec& exec, std::span<const Term> terms, std::uint64_t most) {
  const bool fits_launch = exec.place == Place::cuda && terms.size() <= kTermsInALaunch;
  return fits_launch ? PlacedTerms{.host = terms} : place_terms(exec, terms, most);
}

}  // namespace winnow::kernels
