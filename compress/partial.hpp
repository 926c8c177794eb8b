// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/message.hpp"

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

}  // namespace winnow::compress
