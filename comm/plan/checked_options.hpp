// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/options.hpp>

namespace winnow::comm {

/// Parses each field of `given` from its text and returns the result. Throws UsageError for a value
/// that an option does not take.
Options checked(const Options& given);

}  // namespace winnow::comm
