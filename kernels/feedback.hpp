// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

// Error feedback alone, where all of acc is sent or none of it: acc = gradient + decay * residual,
// as feedback (arithmetic/feedback.hpp) has it. Equal sizes, no overlap; 12 bytes an element. The
// same bits at every place, but for those of a NaN.

/// elements[i] = acc of it and residual[i].
void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay);

/// residual[i] = acc of gradient[i] and it, where acc is finite; as it was elsewhere.
void feedback_keep(const Exec& exec, std::span<float> residual, std::span<const float> gradient,
                   float decay);

}  // namespace winnow::kernels
