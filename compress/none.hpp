// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compress/compressor.hpp"

namespace winnow::compress {

/// "none": every element, as float32. Dense schedules never ask it to encode.
std::unique_ptr<Compressor> make_none(std::string_view argument);

}  // namespace winnow::compress
