// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compress/compressor.hpp"

namespace winnow::compress {

/// "topk:DENSITY": of each parameter the max(1, ceil(density * count)) elements largest in |acc|,
/// ties to the lowest index.
std::unique_ptr<Compressor> make_topk(std::string_view argument, const Codings& codings);

}  // namespace winnow::compress
