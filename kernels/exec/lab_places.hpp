// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>

namespace winnow::kernels {

// Places beyond those of the public header, whose bodies the laboratory brings (lab).

/// Host memory and plain loops.
inline constexpr Place kReferencePlace{2};
/// A prediction's memory: kernels touch words alone, and count the bytes that they would move.
inline constexpr Place kCountedPlace{3};

}  // namespace winnow::kernels
