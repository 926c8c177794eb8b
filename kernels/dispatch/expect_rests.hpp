// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/error.hpp>

#include "kernels/ordered_sum.hpp"

namespace winnow::kernels {

/// UsageError unless there are none, or a residual at the positions of each span of elements.
inline void expect_rests_of(const Placed<PlacedSpan>& elements, const Rests& rests) {
  if (rests.empty()) return;
  WINNOW_EXPECTS(rests.residuals.host.size() == elements.host.size(),
                 "rests take one residual for each span of elements");
  for (std::size_t i = 0; i < elements.host.size(); ++i) {
    const PlacedSpan &span = elements.host[i], &residual = rests.residuals.host[i];
    WINNOW_EXPECTS(residual.elements.type() == ElementType::float32 && residual.base == span.base &&
                       residual.elements.size() == span.elements.size(),
                   "a residual is float32 and lies at the positions of its elements");
  }
}

}  // namespace winnow::kernels
