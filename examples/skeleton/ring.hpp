// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// Copied to comm/schedule/ring.cpp, the declaration goes into schedule.hpp, beside the others.
extern const Schedule kRing;

}  // namespace winnow::comm
