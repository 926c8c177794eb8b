// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

// Error feedback alone, for acc that is sent whole or not at all: acc = gradient + decay *
// residual, as in arithmetic/feedback.hpp. Equal sizes, no overlap; 12 bytes an element. All places
// give the same bits, except in a NaN.

/// elements[i] = acc of it and residual[i].
void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay);

/// residual[i] = acc of gradient[i] and residual[i] if that is finite, else it stays.
void feedback_keep(const Exec& exec, std::span<float> residual, std::span<const float> gradient,
                   float decay);

}  // namespace winnow::kernels
