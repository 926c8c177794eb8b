// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/seal.hpp"

namespace winnow::kernels::cpu {

/// Writes all but the index part: what bodies of the host do when that is written.
void seal(const Exec& exec, const SealJob& job);

}  // namespace winnow::kernels::cpu
