// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// residual[i] += gradient[i]. Equal sizes, no overlap. 12 bytes an element: the yardstick that
/// every other kernel is measured against.
void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient);

}  // namespace winnow::kernels
