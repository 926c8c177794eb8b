// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// Of the message with the sum of so many ranks.
std::uint64_t doubling_sum_bytes(const CostShape& shape, int ranks);

/// What a rank sends: a message for each round, of about twice as many ranks as the one before, and
/// the outcome to its guest if it has one.
std::uint64_t doubling_rank_bytes(const CostShape& shape, int rank);

/// That of rank 0, the busiest.
std::uint64_t doubling_wire_bytes(const CostShape& shape);

std::uint64_t doubling_network_bytes(const CostShape& shape);

std::uint64_t doubling_messages(const CostShape& shape);

double doubling_pass_bytes(const CostShape& shape);

/// Recursive doubling over sparse lists (Renggli et al., SparCML, SC 2019; Thakur et al., 2005). P
/// ranks are B = 2^n places and P - B guests; the first P - B places have two ranks each, 2 p and
/// its guest 2 p + 1, place p of the others is rank p + (P - B). Rounds:
///   1. Guests send their messages to their hosts, who add them to their own.
///   2. Place p and place p xor 1 exchange what they have and add it, then p xor 2, p xor 4, ...
///   3. Hosts send the sum to their guests.
/// Both add the lower places' sum + the upper places', so both have the same bits. With m[r] for
/// messages as they travel, place p begins with m[2 p] + m[2 p + 1] or with its one message, and
/// the sum of places [p, p + 2 n) is that of [p, p + n) + that of [p + n, p + 2 n). What travels
/// between them are unions with float32 values (compress/partial.hpp), which carry every position
/// where that is no longer.
Rounds run_doubling(Exchange& exchange);

}  // namespace winnow::comm
