// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compress/compressor.hpp"

namespace winnow::compress {

/// Error feedback that takes nothing out of a piece: residual = acc. Lists the elements of `own`
/// that reach the piece's bound.
void feed_back(const Exec& exec, const EncodeJob& job, const Piece& piece,
               const kernels::OwnUnits& own, kernels::SelectResult* result);

/// A support and its values, which travelled in a message of their own, as one message: value
/// number i belongs to position i of the support. It has the flags of both, and no bytes until it
/// is packed.
MessageView join_values(const MessageView& support, const MessageView& values);

}  // namespace winnow::compress
