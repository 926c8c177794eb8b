// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/precondition.hpp"

namespace winnow::kernels {

// Error feedback alone, for acc that is sent whole or not at all: acc = gradient + decay *
// residual, as in arithmetic/feedback.hpp. Equal sizes, no overlap; 12 bytes an element. All places
// give the same bits, except in a NaN.

/// elements[i] = acc of it and residual[i].
void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay);

/// residual[i] = acc of residual[i] and what the precondition makes of gradient[i], if that is
/// finite, else it stays. The gradient is of float32, bf16 or fp16.
void feedback_keep(const Exec& exec, std::span<float> residual, const ConstElements& gradient,
                   float decay, const Precondition& precondition);

}  // namespace winnow::kernels
