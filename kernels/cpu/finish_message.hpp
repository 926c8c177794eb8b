// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/finish_message.hpp"

namespace winnow::kernels::cpu {

/// Writes all but the index part: what bodies of the host do when that is written.
void finish_message(const Exec& exec, const FinishJob& job);

}  // namespace winnow::kernels::cpu
