// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/precondition.hpp"

namespace winnow::kernels {

/// elements[i] *= factor.
void scale(const Exec& exec, std::span<float> elements, float factor);

/// ahead[i] = weights[i] - share * residual[i]. Equal sizes; `ahead` overlaps nothing but, in
/// place, `weights`.
void look_ahead(const Exec& exec, std::span<const float> weights, std::span<const float> residual,
                float share, std::span<float> ahead);

/// Each gradient becomes what precondition_by makes of it and its second moment, which takes the
/// step. Equal sizes, no overlap. 16 bytes an element. All places give the same bits, except in a
/// NaN.
void precondition(const Exec& exec, std::span<float> gradient, std::span<float> second,
                  const MomentStep& by);

/// *not_finite becomes 1 if an element is NaN or infinite, else it stays.
void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite);

}  // namespace winnow::kernels
