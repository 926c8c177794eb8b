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

// Buckets that are no sum of gradients: elements of other types, minimum, maximum and product. They
// travel plain: dense, without header, residual or poison, all segments by one native collective.

/// Why a bucket travels plain, or empty. Takes segments as the caller gave them.
std::string plain_reason(std::span<const Segment> segments, ReduceOp op);

/// The plan of bucket `id`, whose segments are all of one type.
Bucket plan_plain(std::uint64_t id, std::span<const Segment> segments, std::string reason,
                  const World& world);

/// Reduces segments of one type, not of 16 bits: in place where they follow each other in memory,
/// through scratch of the same size where they do not. Where it throws, all elements are zero.
void reduce_plain(const Collective& collective, std::span<const Segment> segments, ReduceOp op,
                  Stats& stats);

}  // namespace winnow::comm
