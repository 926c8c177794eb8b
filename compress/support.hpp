// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "compress/compressor.hpp"

namespace winnow::compress {

/// A support and its values, which travelled in a message of their own, as one message: value
/// number i belongs to position i of the support. It has the flags of both, and no bytes until it
/// is packed.
MessageView join_values(const MessageView& support, const MessageView& values);

}  // namespace winnow::compress
