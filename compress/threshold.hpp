// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "compress/compressor.hpp"

namespace winnow::compress {

/// Keeps the elements with |acc| > T, as many as there are: all that are not zero with T = 0, the
/// default, which loses nothing of a gradient that is sparse by nature. Owners keep their sums by
/// the same rule.
std::unique_ptr<Compressor> make_threshold(std::string_view argument, const Codings& codings);

}  // namespace winnow::compress
