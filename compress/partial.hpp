// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "kernels/call_status.hpp"

namespace winnow::compress {

/// The codings of partial sums: float32, so that only the addition rounds.
Codings partial_codings(const Codings& codings);

/// The header of the sum of `ranks` messages with this header, whose k is the most that each may
/// carry: a partial with the most that the sum may carry. For one rank the header itself.
Header partial_header(const Header& header, int ranks, const Codings& codings);

/// Bytes of the longest message with this header, whose k is the most that it may carry.
std::size_t most_bytes(const Header& header, const Codings& codings);

/// Bytes of the longest partial message for up to k of count elements; never more than all of them
/// would take.
std::size_t partial_bytes(std::uint64_t count, std::uint64_t k, const Codings& codings);

/// Replaces the indices of a message by zeros, in scratch, if some message was not sound, so that
/// these may be anything: on the host an index that is not below count is written out of bounds.
/// The message that will have the zeros has poison, since the call is spoiled.
void bound_index(const Exec& exec, MessageView& view, const kernels::CallStatus& status);

}  // namespace winnow::compress
