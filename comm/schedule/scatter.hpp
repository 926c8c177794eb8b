// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

// The schedules of a reduce-scatter. They stand in no table, since they do not end with the same
// sum on all ranks.

/// A reduce-scatter of compressed shards, all of one size: part d is the shard of rank d. Ranks
/// have seen different messages, so they must exchange whether all of these were finite before they
/// write.
extern const Schedule kScatter;

/// A part's reduce-scatter by the transport, in place; the sum is left in the ring_chunk of this
/// rank, and other elements hold anything. The first dense call also sends what compressed calls
/// have left in the residual.
extern const Schedule kDenseScatter;

}  // namespace winnow::comm
