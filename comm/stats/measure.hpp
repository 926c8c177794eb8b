// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/allreducer.hpp>
#include <winnow/stats.hpp>

#include "comm/plan/bucket.hpp"

namespace winnow::comm {

/// Fills in the measured fields of Stats, for the result of a call and the residuals: one pass over
/// each, without communication; device memory is copied to exec.workspace. 16-bit elements count as
/// the float32 whose value they have.
/// With w[i] the bits of element i of the bucket (one value for any NaN), the digest is the hash of
/// count and the sum of w[i] * (2 i + 1) modulo 2^64. The norm adds squares in bucket order.
void measure(const Exec& exec, std::span<const Segment> segments, const Bucket& bucket,
             Stats& call);

}  // namespace winnow::comm
