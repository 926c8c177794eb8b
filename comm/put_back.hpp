// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/exchange.hpp"

namespace winnow::comm {

/// Undoes what a call did to a part, as far as the Exchange says it came: the residuals become acc
/// where it is finite, and stay as they were elsewhere; the elements read `fill`. Where a
/// collective was at work on the elements themselves their acc is lost. Allocates residuals that
/// are missing.
void put_back(const Exchange& exchange, float fill);

}  // namespace winnow::comm
