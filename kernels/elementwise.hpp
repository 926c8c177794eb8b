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

/// Each gradient becomes what divided_by_moment makes of it and its second moment, which takes the
/// step. Equal sizes, no overlap. 16 bytes an element. All places give the same bits, except in a
/// NaN.
void divide_by_moment(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      const SecondMomentStep& by);

/// Each gradient becomes the result of with_momentum, masked where the residual is 0; without a
/// residual nowhere. 4 bytes an element more with one.
void correct_momentum(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      std::span<const float> residual, const MomentumStep& by);

/// The same by a Precondition of these elements. `residual` may be empty, if nothing is masked.
void precondition(const Exec& exec, std::span<float> gradient, std::span<const float> residual,
                  const Precondition& by);

/// *not_finite becomes 1 if an element is NaN or infinite, else it stays.
void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite);

}  // namespace winnow::kernels
