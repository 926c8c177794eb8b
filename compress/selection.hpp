// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <winnow/exec.hpp>

#include "compress/part.hpp"

namespace winnow::compress {

/// Error feedback and exact top-k of each piece, its k elements sent as float32: the body of every
/// compressor that sends selected values as they are. See Compressor::encode.
void select_and_seal(const Exec& exec, float decay, const Part& part, Header header,
                     std::span<std::byte> out);

}  // namespace winnow::compress
