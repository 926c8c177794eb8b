// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "compress/compressor.hpp"

namespace winnow::compress {

/// Error feedback that takes nothing out of the pieces: residual = acc. If `own` is not empty,
/// lists the elements of each piece's entry there that reach the piece's bound. A result for each
/// piece.
void feed_back(const Exec& exec, const EncodeJob& job, std::span<const kernels::OwnedSums> own,
               std::span<kernels::SelectResult> results);

/// A support and its values, which travelled in a message of their own, as one message: value
/// number i belongs to position i of the support. It has the flags of both, and no bytes until it
/// is packed.
MessageView join_values(const MessageView& support, const MessageView& values);

}  // namespace winnow::compress
