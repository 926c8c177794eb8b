// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// elements[i] *= factor.
void scale(const Exec& exec, std::span<float> elements, float factor);

/// *not_finite becomes 1 if an element is NaN or infinite, else it stays.
void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite);

}  // namespace winnow::kernels
