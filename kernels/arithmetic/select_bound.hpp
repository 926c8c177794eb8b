// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/feedback_select.hpp"

namespace winnow::kernels {

/// How the carried bound follows the k-th largest. Too low costs work (candidates that are put
/// back), too high costs a second pass, so the margin aims at a small excess of candidates over k,
/// wider where k is small and chance moves it, and widens at once after a miss.
struct SelectBoundTuning {
  float first_margin = 0.03f;  ///< of the second step, when only one k-th largest was seen
  float excess = 0.08f;        ///< candidates aimed at: k * (1 + excess + spread / sqrt(k))
  float spread = 4;            ///< in standard deviations of a count of k
  float gain = 1.0f / 32;      ///< change of margin by excess; a normal density has slope 8 at 1 %
  float largest_change = 0.02f;  ///< of margin in a step that did not miss
  float miss = 0.02f;     ///< added to margin by a miss, beside an eighth of what was missing
  float lowest = -0.25f;  ///< below zero while the k-th largest grows from step to step
  float highest = 0.5f;
};

/// Learns from a step: `kth` is the k-th largest |acc|, `candidates` how many reached the bound.
/// constexpr makes it a device function too.
constexpr void learn_bound(SelectBound& state, std::uint32_t k, float kth, std::uint64_t candidates,
                           const SelectBoundTuning& tuning = {}) {
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
