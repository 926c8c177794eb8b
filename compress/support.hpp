// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"

namespace winnow::compress {

// Where ranks agree on a support first, messages of values have no indices: value number i stands
// at the i-th position of the support, and count = k is how many positions that has.

/// The rest of Compressor::select: `index` are the local numbers that Part::self picks, ascending.
void seal_support(const Exec& exec, const Codings& codings, const EncodeJob& job,
                  std::span<const std::uint32_t> index, std::span<std::byte> out);

/// What Compressor::take does.
void take_values(const Exec& exec, const Codings& codings, const EncodeJob& job, Taken& taken,
                 std::span<std::byte> out);

/// What Compressor::add does.
void add_values(const Exec& exec, const Codings& codings, const EncodeJob& job,
                std::span<const MessageView> terms, const Addition& out);

/// A support and the values that travelled in a message of their own, as one.
MessageView join_values(const MessageView& support, const MessageView& values);

/// The same message with the values of its list decoded, in scratch from exec.workspace.
MessageView decode_values(const Exec& exec, MessageView message);

}  // namespace winnow::compress
