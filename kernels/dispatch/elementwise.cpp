// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void scale(const Exec& exec, std::span<float> elements, float factor) {
  dispatch(exec, &Bodies::scale, elements, factor);
}

void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite) {
  WINNOW_EXPECTS(not_finite != nullptr, "all_finite needs a word for its answer");
  dispatch(exec, &Bodies::all_finite, elements, not_finite);
}

}  // namespace winnow::kernels
