// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/exchange.hpp"

namespace winnow::comm {

/// Undoes what a call did to a part, as far as the Exchange says it came: the residuals become acc
/// where it is finite, and stay as they were elsewhere; the elements read `fill`. Where a
/// collective was at work on the elements themselves their acc is lost. Allocates residuals that
/// are missing. `exec` is that of the Exchange, or with a condition by which all this is done or
/// not.
void put_back(const Exchange& exchange, const Exec& exec, float fill);

}  // namespace winnow::comm
