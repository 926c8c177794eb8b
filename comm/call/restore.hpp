// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/exchange.hpp"

namespace winnow::comm {

/// Makes room for restore in scratch, at the end of a bucket's first call.
void reserve_for_restore(const Exchange& exchange, const Exec& exec);

/// Undoes what a call did to a part, as far as the Exchange says it got. Residuals become acc where
/// it is finite and keep their value elsewhere; the elements read `fill`. If a collective has
/// worked on the elements themselves, their acc is lost. Allocates missing residuals. `exec` is the
/// Exchange's, perhaps with a condition on which all of this depends.
void restore(const Exchange& exchange, const Exec& exec, float fill);

}  // namespace winnow::comm
