// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "compress/part.hpp"
#include "kernels/call_status.hpp"

namespace winnow::compress {

/// The codings of partial sums: float32, so that only the addition rounds.
Codings partial_codings(const Codings& codings);

/// A partial that carries k of count elements, or all of them where that is no longer.
struct ShortestPartial {
  std::uint64_t k;
  Shape shape;
};
ShortestPartial shortest_partial(std::uint64_t count, std::uint64_t k, const Codings& codings);

/// Adds to PartShapes::partials the sum of so many ranks, unless it is there.
void plan_partial(Part& part, int ranks, const Codings& codings);

/// The header of the sum of `ranks` messages with this header, which are of a part: a partial whose
/// k is the most that it may carry. For one rank the header itself.
Header partial_header(const Header& header, const Part& part, int ranks);

/// Bytes of the longest message with this header, whose k is the most that it may carry.
std::size_t most_bytes(const Header& header, const Codings& codings);

/// Replaces the indices of a message by zeros, in scratch, if some message was not sound, so that
/// these may be anything: on the host an index that is not below count is written out of bounds.
/// The message that will have the zeros has poison, since the call is spoiled.
void bound_index(const Exec& exec, MessageView& view, const kernels::CallStatus& status);

}  // namespace winnow::compress
