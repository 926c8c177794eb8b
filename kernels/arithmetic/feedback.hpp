// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace winnow::kernels {

// The arithmetic on one element. constexpr makes these device functions too (nvcc's
// --expt-relaxed-constexpr), so every body of a kernel computes the same bits; no expression may
// be contracted into a fused multiply-add (-ffp-contract=off, -fmad=false).

/// The residual after a gradient was added to it: one rounding.
constexpr float add_gradient(float residual, float gradient) {
  return residual + gradient;
}

/// Error feedback: what a step has to send. Two roundings.
constexpr float feedback(float gradient, float decay, float residual) {
  return gradient + decay * residual;
}

/// The weight that would be if a share of the residual had been applied to it. Two roundings.
constexpr float ahead_of(float weight, float share, float residual) {
  return weight - share * residual;
}

}  // namespace winnow::kernels
