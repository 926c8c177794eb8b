// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/options.hpp>

namespace winnow::comm {

/// The same options as they are kept, each field as if it had been read from its text. UsageError
/// for a value that an option does not take.
Options checked(const Options& given);

}  // namespace winnow::comm
