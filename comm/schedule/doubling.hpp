// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// Bytes of the message with the sum of `ranks` ranks.
std::uint64_t doubling_sum_bytes(const CostShape& shape, int ranks);

/// Bytes that a rank sends: a message per round, each for about twice as many ranks as the last,
/// and the outcome to its guest if it has one.
std::uint64_t doubling_rank_bytes(const CostShape& shape, int rank);

/// Bytes of rank 0, the busiest.
std::uint64_t doubling_wire_bytes(const CostShape& shape);

std::uint64_t doubling_network_bytes(const CostShape& shape);

std::uint64_t doubling_messages(const CostShape& shape);

double doubling_pass_bytes(const CostShape& shape);

/// Recursive doubling over sparse lists (Renggli et al., SparCML, SC 2019; Thakur et al., 2005). P
/// ranks sit at B = 2^n places. The first P - B places seat two ranks: place p has host 2 p and
/// guest 2 p + 1. Every other place p has rank p + (P - B). Rounds:
///   1. Guests send their messages to their hosts, who add them to their own.
///   2. Places p and p xor 1 exchange what they have and add it, then p and p xor 2, p xor 4, ...
///   3. Hosts send the sum to their guests.
/// Both sides add the lower places' sum + the upper places', so both get the same bits. With m[r]
/// the messages as they travel, place p begins with m[2 p] + m[2 p + 1] or with its single message,
/// and the sum of places [p, p + 2 n) is that of [p, p + n) + that of [p + n, p + 2 n). Places
/// exchange unions with float32 values (compress/partial.hpp), which carry every position if that
/// is no longer.
Rounds run_doubling(Exchange& exchange);

}  // namespace winnow::comm
