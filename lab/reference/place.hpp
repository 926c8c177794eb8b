// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>

namespace winnow::lab {

/// Gives the library the reference bodies: plain loops in host memory, which are the specification
/// of operations that have SIMD bodies. The others have one body for the host.
Place reference_place();

/// The place of the reference bodies.
inline const Place kReference = reference_place();

}  // namespace winnow::lab
