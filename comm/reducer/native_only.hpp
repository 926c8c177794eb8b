// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <winnow/allreducer.hpp>
#include <winnow/stats.hpp>

#include "comm/plan/bucket.hpp"
#include "comm/schedule/collective.hpp"

namespace winnow::comm {

// Plain buckets are not sums of gradients: they have elements of other types, or take the minimum,
// maximum or product. They travel dense, without header, residual or poison bit, in one native
// collective over all segments.

/// Why a bucket only takes native collectives, or empty. Takes segments as the caller gave them.
std::string native_only_reason(std::span<const Segment> segments, ReduceOp op);

/// The plan of bucket `id`, whose segments are all of one type.
Bucket plan_native_only(std::uint64_t id, std::span<const Segment> segments, std::string reason,
                        const World& world);

/// Reduces segments of one type, not 16-bit: in place if they are adjacent in memory, otherwise
/// through scratch of the same size. If it throws, all elements are zero.
void reduce_natively(const Collective& collective, std::span<const Segment> segments, ReduceOp op,
                     Stats& stats);

}  // namespace winnow::comm
