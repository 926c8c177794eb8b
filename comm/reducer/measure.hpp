// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/allreducer.hpp>
#include <winnow/stats.hpp>

#include "comm/plan/bucket.hpp"

namespace winnow::comm {

/// Fills in what Stats says of the result of a call on segments not of 16 bits, and of residuals:
/// one pass over each, without communication; of device memory over a copy in exec.workspace. With
/// w[i] the bits of element i of the bucket (one value for any NaN), the digest is the hash of
/// count and the sum of w[i] * (2 i + 1) modulo 2^64. The norm adds squares in the order of the
/// bucket.
void measure(const Exec& exec, std::span<const Segment> segments, const Bucket& bucket,
             Stats& call);

}  // namespace winnow::comm
