// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compress/compressor.hpp"

namespace winnow::compress {

/// "none": every element, in the value coding asked for; alone it sends the gradient as it is, and
/// dense schedules never ask it to encode.
std::unique_ptr<Compressor> make_none(std::string_view argument, const Codings& codings);

/// The same under the name of a selection that turned out to select everything.
std::unique_ptr<Compressor> make_everything(std::string selection, const Codings& codings);

}  // namespace winnow::compress
