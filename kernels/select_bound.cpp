// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/select_bound.hpp"

#include <algorithm>
#include <cmath>

namespace winnow::kernels {

void learn_bound(SelectBound& state, std::uint32_t k, float kth, std::uint64_t candidates,
                 const SelectBoundTuning& tuning) {
  if (state.k != k) {
    state.margin = tuning.first_margin;
    state.k = k;
  } else {
    const float kept = static_cast<float>(k);
    const float excess = static_cast<float>(candidates) / kept - 1;
    const float aim = tuning.excess + tuning.spread / std::sqrt(kept);
    state.margin += excess < 0 ? tuning.miss + std::min(-excess, 0.5f) / 8
                               : std::clamp((aim - excess) * tuning.gain, -tuning.largest_change,
                                            tuning.largest_change);
    state.margin = std::clamp(state.margin, tuning.lowest, tuning.highest);
  }
  state.bound = kth * (1 - state.margin);
}

}  // namespace winnow::kernels
