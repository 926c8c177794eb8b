// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compress/selection.hpp"

namespace winnow::compress {

/// Copied to compress/fixedk.cpp, the declaration goes into selection.hpp, beside the others.
extern const Selection kFixedK;

}  // namespace winnow::compress
