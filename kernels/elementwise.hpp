// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// elements[i] *= factor.
void scale(const Exec& exec, std::span<float> elements, float factor);

/// Whether no element is NaN or infinite. On a device waits for the answer, and needs
/// exec.device_workspace.
bool all_finite(const Exec& exec, std::span<const float> elements);

}  // namespace winnow::kernels
